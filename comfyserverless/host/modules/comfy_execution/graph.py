"""ComfyUI's `comfy_execution.graph`."""

from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.graphs.builder import is_link
from comfyserverless.host.missing import missing_names

__all__ = ["ExecutionBlocker", "is_link"]
__getattr__ = missing_names(__name__)
