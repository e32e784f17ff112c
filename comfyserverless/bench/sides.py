"""Run the two sides that are compared, each in processes of its own: the whole server, and the plain loop."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from websockets.sync.client import ClientConnection, connect

from comfyserverless.bench.serving import BenchError, running, served
from comfyserverless.bench.workload import Workload

CLIENT_ID = "comfyserverless-bench"


class Side(Protocol):
    """Something that makes the picture of a workload."""

    def picture(self, seed: int) -> tuple[float, bytes]:
        """Return the wall seconds of one picture, and its PNG bytes."""


class ServerSide:
    """Ask a running server over HTTP and websocket, as the page does.

    preview_method: as the page's setting has it. steps_s: seconds from each step of the last picture to the
    next one; previews: how many came with it.
    """

    def __init__(
        self, url: str, link: ClientConnection, workload: Workload, preview_method: str = "none"
    ) -> None:
        self._url = url
        self._link = link
        self._workload = workload
        self._preview_method = preview_method
        self.steps_s: list[float] = []
        self.previews = 0

    def previewing(self) -> ServerSide:
        """Return the same server, asked for previews."""
        return ServerSide(self._url, self._link, self._workload, "latent2rgb")

    def picture(self, seed: int) -> tuple[float, bytes]:
        """Return the seconds from the request to `execution_success`, and the PNG. Raises BenchError."""
        request = {"prompt": self._workload.prompt(seed), "client_id": CLIENT_ID}
        request["extra_data"] = {"preview_method": self._preview_method}
        body = json.dumps(request).encode()
        begin_s = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(f"{self._url}/prompt", body)) as answer:
            prompt_id = json.load(answer)["prompt_id"]
        image = self._wait(prompt_id)
        elapsed_s = time.perf_counter() - begin_s
        query = "&".join(f"{key}={image[key]}" for key in ("filename", "subfolder", "type"))
        with urllib.request.urlopen(f"{self._url}/view?{query}") as answer:
            return elapsed_s, answer.read()

    def _wait(self, prompt_id: str) -> dict[str, Any]:
        """Listen until the prompt has succeeded; returns the entry of its picture."""
        image: dict[str, Any] = {}
        told_at_s: list[float] = []
        self.previews = 0
        for frame in self._link:
            if isinstance(frame, bytes):
                self.previews += 1
                continue
            message = json.loads(frame)
            if message["data"].get("prompt_id") != prompt_id:
                continue
            if message["type"] == "progress":
                told_at_s.append(time.perf_counter())
            if message["type"] == "executed":
                image = message["data"]["output"]["images"][0]
            if message["type"] == "execution_success":
                self.steps_s = [after - before for before, after in itertools.pairwise(told_at_s)]
                return image
            if message["type"] == "execution_error":
                raise BenchError(f"the server failed: {message['data']['exception_message']}")
        raise BenchError("the server closed the websocket")


class DirectSide:
    """Ask the process of `comfyserverless.bench.direct`, one line for each picture."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def picture(self, seed: int) -> tuple[float, bytes]:
        """Return the seconds that the process measured, and the PNG. Raises BenchError if it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the plain loop ended with code {self._process.wait()}")
        answer = json.loads(line)
        return answer["seconds"], Path(answer["file"]).read_bytes()


@contextmanager
def serving(
    workload: Workload, folder: Path, flags: Sequence[str] = (), workers: int = 1
) -> Iterator[ServerSide]:
    """Start a server whose only models folder holds the checkpoint; stop it in the end."""
    checkpoints = folder / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / workload.checkpoint.name).symlink_to(workload.checkpoint)
    given = ["--cache-none", *flags]
    with served(folder, given, workload.threads, workers) as url, asking(url, workload) as side:
        yield side


@contextmanager
def asking(url: str, workload: Workload) -> Iterator[ServerSide]:
    """Connect to a server that runs."""
    address = url.replace("http", "ws", 1)
    with connect(f"{address}/ws?clientId={CLIENT_ID}", max_size=None) as link:
        yield ServerSide(url, link, workload)


@contextmanager
def looping(workload: Workload, folder: Path) -> Iterator[DirectSide]:
    """Start the plain loop in a process of its own; stop it in the end."""
    command = [sys.executable, "-m", "comfyserverless.bench.direct", str(workload.checkpoint)]
    command += [str(workload.steps), str(workload.size_px), str(workload.threads), str(folder)]
    with running(command, workload.threads, subprocess.PIPE) as process:
        yield DirectSide(process)
