"""Run the server: folders, sockets, engine, signals; the only place that starts and stops all of it."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aiohttp import web

from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.database import AccountDatabase
from comfyserverless.control.accounts.sessions import BUSY_S
from comfyserverless.control.accounts.source import AccountFile
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.engine import Engine
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.records.lock import FolderLock
from comfyserverless.control.records.opening import records_file
from comfyserverless.core.config import Folders, ServerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.server.app import build_app
from comfyserverless.server.broadcasts.room import raise_file_limit
from comfyserverless.server.logs import LogTape

_log = logging.getLogger(__name__)

_BACKLOG_CONNECTIONS = 1024
_SHUTDOWN_S = 3.0
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def serve(config: ServerConfig, logs: LogTape) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code. Raises ConfigError for what cannot work."""
    raise_file_limit()
    listeners = bind(config.listen, config.port)  # first: a start that fails here may have a twin that runs
    try:
        check_strangers(config, listeners)
        check_users(config)
        with ExitStack() as locks:
            locks.enter_context(FolderLock(config.engine.folders.user))
            if (records := records_file(config.engine.database)) is not None:
                locks.enter_context(FolderLock(records.parent, records.name))
            prepare_folders(config.engine.folders)
            try:
                return asyncio.run(_serve(config, listeners, logs))
            finally:
                _empty(config.engine.folders.temp)
    finally:
        for listener in listeners:
            listener.close()


def check_strangers(config: ServerConfig, listeners: Sequence[socket.socket]) -> None:
    """Refuse to listen where other machines can connect without accounts, unless that was asked for.

    Raises ConfigError.
    """
    names = [str(listener.getsockname()[0]) for listener in listeners]
    open_ones = [name for name in names if not ipaddress.ip_address(name.partition("%")[0]).is_loopback]
    if not open_ones or has_accounts(config):
        return
    if not config.allows_strangers:
        raise ConfigError(
            f"--listen {', '.join(open_ones)}: everybody who can reach this machine could use the server."
            " Add an account first (`comfyserverless tenant add NAME`), or give --insecure to do without"
        )
    _log.warning(
        "Listening on %s: everybody who can reach this machine can use the server, without a password",
        ", ".join(open_ones),
    )


def check_users(config: ServerConfig) -> None:
    """Refuse two ways of telling people apart at once. Raises ConfigError."""
    if config.has_users and has_accounts(config):
        raise ConfigError(
            "--multi-user: this server has accounts, which keep people's settings and files apart"
        )


def has_accounts(config: ServerConfig) -> bool:
    """Tell whether a server has accounts, so that everybody needs a token."""
    return config.tenants_file is not None or config.accounts is not None


def open_accounts(config: ServerConfig) -> AccountBook | None:
    """Open the accounts; None for a server with one user. Raises ConfigError if they cannot be read."""
    if config.tenants_file is not None:
        return AccountBook(AccountFile(config.tenants_file))
    if config.accounts is not None:
        return AccountBook(AccountDatabase(config.accounts, wait_s=BUSY_S))
    return None


def prepare_folders(folders: Folders) -> None:
    """Make the folders that the server writes to, and empty the temporary one. Raises ConfigError."""
    for folder in (folders.input, folders.output, folders.temp, folders.user):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(f"Cannot make the folder {folder}: {exc.strerror}") from exc
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigError(f"The folder {folder} is not readable and writable")
    _empty(folders.temp)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def bind(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Open a listening socket per address; port 0 takes a free one for all. Raises ConfigError."""
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listener = _bind_one(address, port, is_optional=len(addresses) > 1 and address == "::")
            if listener is not None:
                listeners.append(listener)
                port = listener.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bind_one(address: str, port: int, *, is_optional: bool) -> socket.socket | None:
    """Bind one address; None if it is optional and this machine has no IPv6."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        if is_optional:
            return None
        raise ConfigError(f"--listen {address}: {exc.strerror}") from exc
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(place)
        listener.listen(_BACKLOG_CONNECTIONS)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        if is_optional and exc.errno == errno.EADDRNOTAVAIL:
            return None
        raise ConfigError(_bind_problem(address, port, exc)) from exc
    return listener


def _bind_problem(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {address} is taken by another program; choose another one with --port"
    return f"Cannot listen on {address} port {port}: {error.strerror}"


def page_url(listeners: Sequence[socket.socket]) -> str:
    """Return the address of the page for a browser on this machine."""
    address, port = listeners[0].getsockname()[:2]
    host = _EVERY_ADDRESS.get(address, f"[{address}]" if ":" in address else address)
    return f"http://{host}:{port}"


async def _serve(config: ServerConfig, listeners: Sequence[socket.socket], logs: LogTape) -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    tenants = Tenants(FolderPaths(config.engine.folders), open_accounts(config))
    engine = Engine(config.engine, tenants)
    runner = web.AppRunner(
        build_app(config, engine, tenants, logs), access_log=None, shutdown_timeout=_SHUTDOWN_S
    )
    await runner.setup()
    failures: list[BaseException] = []

    def note_failure(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.critical("The engine cannot start", exc_info=failure)
            failures.append(failure)
            stop.set()

    try:
        for listener in listeners:
            await web.SockSite(runner, listener).start()
        _log.info("Open %s in a browser to use comfyserverless", page_url(listeners))
        starting = asyncio.create_task(engine.start())
        starting.add_done_callback(note_failure)
        settle_memory()
        await stop.wait()
    finally:
        _log.info("Stopping")
        try:
            await _drain(engine, config.drain_s, hurry)
            await runner.cleanup()
        finally:
            await engine.stop()
    return 1 if failures else 0


def settle_memory() -> None:
    """Let the collector of garbage pass over what stays: it would hold up requests to look at all of it."""
    gc.collect()
    gc.freeze()


async def _drain(engine: Engine, within_s: float, hurry: asyncio.Event) -> None:
    """Let running prompts end for some time, or until a second signal asks to hurry."""
    waits = [asyncio.create_task(engine.drain(within_s)), asyncio.create_task(hurry.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
