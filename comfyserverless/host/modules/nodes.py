"""ComfyUI's `nodes`."""

from typing import Any

from comfyserverless.host.bridge import bridge
from comfyserverless.host.library.classes import make_class
from comfyserverless.host.library.mapping import ClassMappings, builtin_classes
from comfyserverless.host.library.methods import METHODS
from comfyserverless.host.library.saving import LoadImage, PreviewImage, SaveImage
from comfyserverless.host.loading.packs import WEB_FOLDERS
from comfyserverless.host.missing import missing_names, unsupported
from comfyserverless.host.sampling.ksampler import common_ksampler

MAX_RESOLUTION = 16384

_classes, NODE_DISPLAY_NAME_MAPPINGS = builtin_classes()
NODE_CLASS_MAPPINGS = ClassMappings(_classes)
EXTENSION_WEB_DIRS = WEB_FOLDERS
LOADED_MODULE_DIRS: dict[str, str] = {}

load_custom_node = unsupported("nodes.load_custom_node")
init_extra_nodes = unsupported("nodes.init_extra_nodes")
init_external_custom_nodes = unsupported("nodes.init_external_custom_nodes")


def before_node_execution() -> None:
    """Raise InterruptProcessingException if the prompt was stopped."""
    bridge().throw_if_interrupted()


def interrupt_processing(value: bool = True) -> None:
    """Stop the prompt."""
    bridge().interrupt(value)


_missing = missing_names(__name__)


def __getattr__(name: str) -> Any:
    """Find classes of nodes by their names; of those that are missing one that says so."""
    if name in _classes:
        return _classes[name]
    if name in METHODS:
        return make_class(name, {})
    return _missing(name)


__all__ = [
    "EXTENSION_WEB_DIRS",
    "LOADED_MODULE_DIRS",
    "MAX_RESOLUTION",
    "NODE_CLASS_MAPPINGS",
    "NODE_DISPLAY_NAME_MAPPINGS",
    "LoadImage",
    "PreviewImage",
    "SaveImage",
    "before_node_execution",
    "common_ksampler",
    "interrupt_processing",
]
