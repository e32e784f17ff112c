"""ComfyUI's `comfy_execution.progress`."""

from comfyserverless.host.graphs.context import ProgressRegistry, get_progress_state
from comfyserverless.host.missing import missing_names

__all__ = ["ProgressRegistry", "get_progress_state"]
__getattr__ = missing_names(__name__)
