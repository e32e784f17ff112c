"""Answer `comfy_api.feature_flags`: what this server and its connections say that they can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.host.flags.arguments import arguments

_MIB = 1 << 20


def get_server_features() -> dict[str, Any]:
    """Return the server's flags, as it sends them on the websocket."""
    return {
        "supports_preview_metadata": True,
        "max_upload_size": int(arguments().max_upload_size * _MIB),
        "node_replacements": True,
        "assets": False,
        "extension": {"manager": {"supports_v4": False}},
    }


def get_connection_feature(
    sockets_metadata: Mapping[str, Mapping[str, Any]], sid: str, feature_name: str, default: Any = False
) -> Any:
    """Return a flag of a connection, the default if it has said nothing of it."""
    flags = sockets_metadata.get(sid, {}).get("feature_flags", {})
    return flags.get(feature_name, default)


def supports_feature(sockets_metadata: Mapping[str, Mapping[str, Any]], sid: str, feature_name: str) -> bool:
    """Tell whether a connection has set a flag to true."""
    return get_connection_feature(sockets_metadata, sid, feature_name) is True
