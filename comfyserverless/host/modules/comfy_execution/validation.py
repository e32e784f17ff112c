"""ComfyUI's `comfy_execution.validation`."""

from comfyserverless.host.graphs.types import validate_node_input
from comfyserverless.host.missing import missing_names

__all__ = ["validate_node_input"]
__getattr__ = missing_names(__name__)
