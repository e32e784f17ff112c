"""ComfyUI's `comfy_extras.chainner_models.model_loading`."""

from comfyserverless.host.helpers.upscalers import load_state_dict
from comfyserverless.host.missing import missing_names

__all__ = ["load_state_dict"]
__getattr__ = missing_names(__name__)
