"""Run drawn prompts on a real server and tell what went wrong: anything but an answer that is meant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import Folders
from comfyserverless.graph.declaration import FileChoices
from tests.support.client import Client
from tests.support.fuzz import values
from tests.support.fuzz.graphs import ROOT, GraphMaker, declarations

OURS = frozenset(
    {
        *(
            f"comfyserverless.core.errors.{name}"
            for name in ("PromptError", "ModelFileError", "CapacityError", "NoRoomError")
        ),
        "torch.OutOfMemoryError",
    }
)
"""Types of errors that say what is wrong with a prompt, or what there is too little of."""

TINY_ONLY = "Expected more than 1 value per channel"
"""What torch says of a latent of one cell in a network whose groups have one channel, as only tiny ones do."""

HANGS_AFTER_S = 180.0
ENDS_WITHIN_S = 120.0


@dataclass
class Report:
    """What was tried, and what should not have happened: text, and what brought it about."""

    is_loud: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str]] = field(default_factory=list)

    def find(self, what: str, by: Any) -> None:
        """Note a finding."""
        shown = by if isinstance(by, str) else values.dumped(by).decode()[:20_000]
        self.findings.append((what, shown))
        if self.is_loud:
            self.say("FINDING {}\n    {}".format(*self.findings[-1]))

    def say(self, text: str) -> None:
        """Print for people."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def summary(self) -> str:
        """Return the counts and the number of findings."""
        lines = [f"{count:6d} {what}" for what, count in sorted(self.counts.items())]
        return "\n".join([*lines, f"{len(self.findings):6d} findings"])

    def check(self) -> None:
        """Raise AssertionError if there are findings."""
        assert not self.findings, "\n".join(f"{what}\n    {by[:3000]}" for what, by in self.findings)


def provide_inputs(base: Path) -> None:
    """Put pictures and a latent into the input folder of a base folder."""
    folder = base / "input"
    folder.mkdir(exist_ok=True)
    header = json.dumps({"latent_tensor": {"dtype": "F32", "shape": [1, 4, 4, 5], "data_offsets": [0, 320]}})
    content = struct.pack("<Q", len(header)) + header.encode() + bytes(320)
    (folder / "fuzz.latent").write_bytes(content)
    for place in (ROOT / "graphs" / "inputs", ROOT / "tests" / "parity" / "inputs"):
        for path in place.glob("*.png"):
            shutil.copy(path, folder)


def folder_paths(base: Path, models: Path | None) -> FolderPaths:
    """Return where the files of a server with this base folder lie."""
    return FolderPaths(
        Folders(
            base=base,
            models=(models,) if models else (),
            input=base / "input",
            output=base / "output",
            temp=base / "temp",
            user=base / "user",
            custom_nodes=base / "custom_nodes",
        )
    )


def maker_for(
    base: Path, models: Path | None, extreme: float = 0.06, *, avoids_models: bool = False
) -> GraphMaker:
    """Return a maker of graphs that names the files of a server."""
    paths = folder_paths(base, models)
    specs = [spec for declared in declarations().values() for spec in declared.inputs]
    folders = {spec.type.folder for spec in specs if isinstance(spec.type, FileChoices)}
    files = {folder: _supported(paths.names(folder)) for folder in sorted(folders)}
    inputs = {content: paths.input_names(content) for content in ("image", "latent")}
    return GraphMaker(files, inputs, extreme, avoids_models)


def _supported(names: list[str]) -> list[str]:
    """Leave families out that are refused anyway."""
    return [name for name in names if name.startswith(("sd15", "sdxl", "sd_"))] or names


async def judge_prompt(client: Client, graph: Any, report: Report) -> str:
    """Run a prompt and note what went wrong; returns what came of it in one word."""
    outcome = await _outcome(client, graph, report)
    report.counts[f"prompt {outcome}"] += 1
    return outcome


async def _outcome(client: Client, graph: Any, report: Report) -> str:
    body = values.dumped({"prompt": graph, "client_id": client.client_id})
    headers = {"Content-Type": "application/json"}
    async with client.session.post("/prompt", data=body, headers=headers) as answer:
        text = await answer.text()
        if answer.status != 200:
            _judge_refusal(answer.status, text, graph, report)
            return "refused"
    prompt_id = json.loads(text)["prompt_id"]
    entry = await _wait(client, prompt_id)
    if entry is None:
        running = await _interrupt(client, prompt_id)
        if running is None:
            return "long"  # much work on few cores is no fault
        report.find(f"HANGS, also after an interrupt; runs {str(running)[:500]}", graph)
        return "hangs"
    status = entry["status"]
    if status["status_str"] == "success":
        return "success"
    failures = [data for kind, data in status["messages"] if kind == "execution_error"]
    if not failures:
        report.find(f"ended without an execution_error: {status}", graph)
        return "lost"
    kind, said = failures[0]["exception_type"], failures[0]["exception_message"].strip()
    if TINY_ONLY not in said and (kind not in OURS or not said):
        where = "".join(failures[0]["traceback"][-2:])
        report.find(f"{failures[0]['node_type']} {kind}: {said[:500]}\n{where}", graph)
    return str(kind).rpartition(".")[2]


def _judge_refusal(status: int, text: str, graph: Any, report: Report) -> None:
    """A refusal is a 400 in ComfyUI's shape that says something."""
    try:
        answer = json.loads(text)
        is_fine = status in (400, 413) and bool(answer["error"]["message"]) and "node_errors" in answer
    except (ValueError, KeyError, TypeError):
        is_fine = False
    if not is_fine:
        report.find(f"refused by {status}: {text[:500]}", graph)


async def _wait(client: Client, prompt_id: str) -> dict[str, Any] | None:
    """Return the entry of the history, None if it takes too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANGS_AFTER_S):
            pause_s = 0.01
            while True:
                found = await client.get(f"/history/{prompt_id}")
                if prompt_id in found:
                    entry: dict[str, Any] = found[prompt_id]
                    return entry
                await asyncio.sleep(pause_s)
                pause_s = min(0.2, pause_s * 1.5)
    return None


async def _interrupt(client: Client, prompt_id: str) -> list[str] | None:
    """Interrupt a prompt that takes long; returns None if that ends it, else what runs."""
    await client.post("/interrupt", {"prompt_id": prompt_id})
    await client.post("/queue", {"delete": [prompt_id]})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS_WITHIN_S):
            while await _is_open(client, prompt_id):  # noqa: ASYNC110 - a real server
                await asyncio.sleep(0.1)
            return None
    workers = (await client.get("/comfyserverless/workers"))["workers"]
    return [each for worker in workers for each in worker["running"]]


async def _is_open(client: Client, prompt_id: str) -> bool:
    queue = await client.get("/queue")
    return any(entry[1] == prompt_id for entries in queue.values() for entry in entries)


async def worker_ids(client: Client) -> list[Any]:
    """Return who works, so that one that died shows."""
    workers = await client.wait_for_workers(within_s=240)
    return sorted((worker["slot"], worker["pid"], worker["restarts"]) for worker in workers)


def judge_log(log: str, report: Report) -> None:
    """Note what a server's log tells of faults that no answer told."""
    lines = log.splitlines()
    words = ("Traceback (most recent", "never retrieved", "never awaited", "Unhandled", "Fatal")
    for number, line in enumerate(lines):
        around = "\n".join(lines[max(0, number - 3) : number + 25])
        if any(word in line for word in words) and "aiohttp.http_exceptions" not in around:
            report.find("the log shows a fault", around)


async def is_alive(client: Client) -> bool:
    """Tell whether the server answers."""
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            return bool(await client.get("/system_stats"))
    except (TimeoutError, aiohttp.ClientError):
        return False
