"""Run a throw-away PostgreSQL cluster, where its programs are installed, and end it as crashes do."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.server import free_port

OWNER = "tester"
SECRET = "p@ss:wörd"
PASSWORD = "p%40ss%3Aw%C3%B6rd"
"""SECRET as it is written in an address."""

_PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"
_WITHIN_S = 240.0


def programs() -> Path | None:
    """Return the folder with the programs of PostgreSQL, None if there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    for place in _PLACES:
        folders += sorted(Path("/").glob(place[1:]))
    usable = [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
    return usable[-1] if usable else None


class Cluster:
    """One PostgreSQL server with its own folder, on a socket in it and on the loopback interface."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._make()

    def _as_owner(self) -> dict[str, Any]:
        """Return how to start a program: PostgreSQL refuses to run as root."""
        if os.getuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _make(self) -> None:
        if who := self._as_owner():
            os.chown(self.folder, who["user"], who["group"])
        data = self.folder / "data"
        command = [str(self._bin / "initdb"), "-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8"]
        command += ["--no-locale", "--no-sync"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, check=False, **self._as_owner()
        )
        assert done.returncode == 0, done.stderr
        hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (data / "pg_hba.conf").write_text(hba)

    def start(self) -> None:
        """Start the server, also after a crash, and wait until it takes connections."""
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        command += ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]
        # Without fsync a killed server is back at once; what it has written the kernel keeps.
        command += ["-c", "max_connections=30", "-c", "autovacuum_naptime=5s", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder, **self._as_owner()
            )
        deadline_s = time.monotonic() + _WITHIN_S
        while True:
            try:
                self.admin("SELECT 1")
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline_s, (self.folder / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """End the server in good order, at once: it ends its connections."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Kill the server and all its processes, as a loss of power does."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(_WITHIN_S)
        self._process = None

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_WITHIN_S)
            self._process = None

    def admin(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the owner of the cluster; returns its rows."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def new_database(self) -> str:
        """Make an empty database; returns its name."""
        name = f"db{secrets.token_hex(4)}"
        self.admin(f"CREATE DATABASE {name}")
        return name

    def new_login(self, database: str) -> str:
        """Let somebody else own a database, who needs a password; returns the address with it."""
        self.admin(f"CREATE ROLE {database} LOGIN PASSWORD '{SECRET}'")
        self.admin(f"ALTER DATABASE {database} OWNER TO {database}")
        return f"postgresql://{database}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def address(self, database: str) -> str:
        """Return the address of a database, by way of the socket: its owner needs no password there."""
        return f"postgresql://{OWNER}@/{database}?host={self.folder}&port={self.port}"


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Run a cluster; the test is skipped where PostgreSQL is not installed."""
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("the programs of PostgreSQL (initdb, postgres) are not installed")
    with tempfile.TemporaryDirectory(prefix="comfyserverless-pg-", dir="/tmp") as name:
        cluster = Cluster(Path(name), bin_folder)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
