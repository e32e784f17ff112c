"""ComfyUI's `comfy_api.feature_flags`."""

from comfyserverless.host.api.features import get_connection_feature, get_server_features, supports_feature
from comfyserverless.host.missing import missing_names

SERVER_FEATURE_FLAGS = get_server_features()

__all__ = ["SERVER_FEATURE_FLAGS", "get_connection_feature", "get_server_features", "supports_feature"]
__getattr__ = missing_names("comfy_api.feature_flags")
