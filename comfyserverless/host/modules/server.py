"""ComfyUI's `server`."""

from comfyserverless.host.missing import missing_names
from comfyserverless.host.web.events import BinaryEventTypes
from comfyserverless.host.web.prompt_server import PromptServer

if not hasattr(PromptServer, "instance"):  # not in the node host: something to be imported, that serves nothing
    PromptServer.instance = PromptServer()

__all__ = ["BinaryEventTypes", "PromptServer"]
__getattr__ = missing_names(__name__)
