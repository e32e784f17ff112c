"""ComfyUI's `comfy.text_encoders`: modules that have no file here can be imported, and refuse to work."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.stubs import make_modules_below

make_modules_below(__name__, refused)
