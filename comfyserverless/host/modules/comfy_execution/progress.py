"""ComfyUI's `comfy_execution.progress`."""

from comfyserverless.host.graphs.context import ProgressRegistry, get_progress_state
from comfyserverless.host.layers.refusing import missing_class
from comfyserverless.host.missing import missing_names, unsupported

ProgressHandler = missing_class(f"{__name__}.ProgressHandler")
WebUIProgressHandler = missing_class(f"{__name__}.WebUIProgressHandler", ProgressHandler)
CLIProgressHandler = missing_class(f"{__name__}.CLIProgressHandler", ProgressHandler)
NodeState = missing_class(f"{__name__}.NodeState")
NodeProgressState = missing_class(f"{__name__}.NodeProgressState")
add_progress_handler = unsupported(f"{__name__}.add_progress_handler")
reset_progress_state = unsupported(f"{__name__}.reset_progress_state")

__all__ = ["ProgressRegistry", "get_progress_state"]
__getattr__ = missing_names(__name__)
