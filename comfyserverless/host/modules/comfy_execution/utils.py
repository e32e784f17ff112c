"""ComfyUI's `comfy_execution.utils`."""

from comfyserverless.host.graphs.context import CurrentNodeContext, ExecutionContext, get_executing_context
from comfyserverless.host.missing import missing_names

__all__ = ["CurrentNodeContext", "ExecutionContext", "get_executing_context"]
__getattr__ = missing_names(__name__)
