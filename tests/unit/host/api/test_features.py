"""Flags of the server and of connections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comfyserverless.core.config import EngineConfig, Folders, ServerConfig
from comfyserverless.host.api.features import get_connection_feature, get_server_features, supports_feature
from comfyserverless.server.routes.system import server_features
from tests.support.pack_modules import pack_modules

SOCKETS = {"a": {"feature_flags": {"supports_preview_metadata": True, "size": 3}}, "b": {}}


def test_packs_see_the_flags_that_the_server_sends(tmp_path: Path) -> None:
    config = replace(ServerConfig(EngineConfig(Folders(*[tmp_path] * 7))), max_upload_bytes=100 << 20)
    with pack_modules(tmp_path):
        assert get_server_features() == server_features(config)


def test_connection_has_the_flags_that_it_told() -> None:
    assert supports_feature(SOCKETS, "a", "supports_preview_metadata")
    assert not any(supports_feature(SOCKETS, sid, "supports_preview_metadata") for sid in ("b", "unknown"))
    assert not supports_feature(SOCKETS, "a", "size")
    assert get_connection_feature(SOCKETS, "a", "size") == 3
    assert get_connection_feature(SOCKETS, "b", "size", default=7) == 7
