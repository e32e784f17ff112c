"""ComfyUI's `app`: parts of its server, which is another program here; names can be imported, and refuse
work."""

from comfyserverless.host.stubs import make_modules_below, refused_names

make_modules_below(__name__, refused_names)
