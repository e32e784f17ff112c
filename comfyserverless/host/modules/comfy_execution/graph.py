"""ComfyUI's `comfy_execution.graph`."""

from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.dynprompt import DynamicPrompt, NodeNotFoundError
from comfyserverless.host.graphs.builder import is_link
from comfyserverless.host.graphs.inputs import get_input_info
from comfyserverless.host.layers.refusing import missing_class
from comfyserverless.host.missing import missing_names

TopologicalSort = missing_class(f"{__name__}.TopologicalSort")
ExecutionList = missing_class(f"{__name__}.ExecutionList", TopologicalSort)


class NodeInputError(Exception):
    """An input of a node cannot be had."""


class DependencyCycleError(Exception):
    """Nodes of a graph wait for each other."""


__all__ = [
    "DependencyCycleError",
    "DynamicPrompt",
    "ExecutionBlocker",
    "ExecutionList",
    "NodeInputError",
    "NodeNotFoundError",
    "TopologicalSort",
    "get_input_info",
    "is_link",
]
__getattr__ = missing_names(__name__)
