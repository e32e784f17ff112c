"""ComfyUI's `api_server`: names can be imported, and refuse work."""

from comfyserverless.host.stubs import make_modules_below, refused_names

make_modules_below(__name__, refused_names)
