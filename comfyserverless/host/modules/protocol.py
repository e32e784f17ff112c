"""ComfyUI's `protocol`."""

from comfyserverless.host.missing import missing_names
from comfyserverless.host.web.events import BinaryEventTypes

__all__ = ["BinaryEventTypes"]
__getattr__ = missing_names(__name__)
