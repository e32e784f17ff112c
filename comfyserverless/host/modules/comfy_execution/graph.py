"""ComfyUI's `comfy_execution.graph`."""

from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.dynprompt import DynamicPrompt, NodeNotFoundError
from comfyserverless.host.graphs.builder import is_link
from comfyserverless.host.missing import missing_names


class NodeInputError(Exception):
    """An input of a node cannot be had."""


class DependencyCycleError(Exception):
    """Nodes of a graph wait for each other."""


__all__ = [
    "DependencyCycleError",
    "DynamicPrompt",
    "ExecutionBlocker",
    "NodeInputError",
    "NodeNotFoundError",
    "is_link",
]
__getattr__ = missing_names(__name__)
