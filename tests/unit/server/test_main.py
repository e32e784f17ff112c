"""Folders and ports are ready before anything starts, or the start ends with a clear reason."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.core.config import EngineConfig, Folders, ServerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.server.logs import LogTape
from comfyserverless.server.main import bind, check_strangers, page_url, prepare_folders, serve


def test_folders_are_made_and_the_temporary_one_emptied(folders: Folders) -> None:
    (folders.temp / "old/deep").mkdir(parents=True)
    (folders.temp / "old.png").write_bytes(b"x")
    (folders.temp / "link").symlink_to(folders.output)
    (folders.output / "kept.png").write_bytes(b"x")
    prepare_folders(folders)
    assert folders.user.is_dir()
    assert not list(folders.temp.iterdir())
    assert (folders.output / "kept.png").exists()


def test_folder_that_cannot_be_made_is_named(folders: Folders) -> None:
    (folders.base / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file/user"):
        prepare_folders(replace(folders, user=folders.base / "file/user"))


def test_free_port_is_shared_by_all_addresses() -> None:
    listeners = bind(("127.0.0.1", "127.0.0.2"), 0)
    try:
        ports = {listener.getsockname()[1] for listener in listeners}
        assert len(listeners) == 2
        assert len(ports) == 1
        assert page_url(listeners) == f"http://127.0.0.1:{ports.pop()}"
    finally:
        for listener in listeners:
            listener.close()


def test_page_address_can_be_opened_when_listening_everywhere() -> None:
    listeners = bind(("0.0.0.0", "::"), 0)
    try:
        assert page_url(listeners).startswith("http://127.0.0.1:")
    finally:
        for listener in listeners:
            listener.close()


def test_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} on 127\.0\.0\.1 is taken.*--port"):
            bind(("127.0.0.1",), port)


def test_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        bind(("192.0.2.1",), 0)


def test_start_on_a_taken_port_leaves_the_pictures_of_the_running_server_alone(folders: Folders) -> None:
    prepare_folders(folders)
    (folders.temp / "preview.png").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as running:
        config = ServerConfig(engine=EngineConfig(folders=folders), port=running.getsockname()[1])
        with pytest.raises(ConfigError, match="is taken"):
            serve(config, LogTape())
    assert (folders.temp / "preview.png").exists()


def check(folders: Folders, address: str, **settings: Any) -> None:
    listeners = bind((address,), 0)
    try:
        check_strangers(ServerConfig(EngineConfig(folders), **settings), listeners)
    finally:
        listeners[0].close()


def test_server_without_accounts_stays_on_this_machine(folders: Folders) -> None:
    check(folders, "127.0.0.1")
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0.*tenant add.*--insecure"):
        check(folders, "0.0.0.0")


@pytest.mark.parametrize("settings", [{"tenants_file": Path("t.toml")}, {"accounts": Path("a.sqlite3")}])
def test_server_with_accounts_may_be_reached_from_everywhere(
    folders: Folders, settings: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    check(folders, "0.0.0.0", **settings)
    assert "without a password" not in caplog.text


def test_server_that_is_opened_on_purpose_says_so(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(folders, "0.0.0.0", allows_strangers=True)
    assert "without a password" in caplog.text
