"""Folders and ports are ready before anything starts, or the start ends with a clear reason."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace

import pytest

from comfyserverless.core.config import EngineConfig, Folders, ServerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.server.logs import LogTape
from comfyserverless.server.main import bind, page_url, prepare_folders, serve, warn_of_strangers


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


@pytest.mark.parametrize(("address", "is_warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_start_warns_when_other_machines_can_connect(
    address: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = bind((address,), 0)
    try:
        with caplog.at_level(logging.WARNING):
            warn_of_strangers(listeners)
    finally:
        listeners[0].close()
    assert ("without a password" in caplog.text) is is_warned
