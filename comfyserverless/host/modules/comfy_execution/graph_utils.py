"""ComfyUI's `comfy_execution.graph_utils`."""

from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.graphs.builder import GraphBuilder, Node, add_graph_prefix, is_link
from comfyserverless.host.missing import missing_names

__all__ = ["ExecutionBlocker", "GraphBuilder", "Node", "add_graph_prefix", "is_link"]
__getattr__ = missing_names(__name__)
