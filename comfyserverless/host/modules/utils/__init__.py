"""ComfyUI's `utils`, as far as packs use it."""

from comfyserverless.host.stubs import make_modules_below, refused_names

make_modules_below(__name__, refused_names, ("json_util", "mime_types"))
