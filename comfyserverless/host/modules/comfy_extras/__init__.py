"""ComfyUI's `comfy_extras`: modules of further nodes, whose classes are those of `nodes`."""

from comfyserverless.host.stubs import make_modules_below, names_of_nodes

make_modules_below(__name__, names_of_nodes)
