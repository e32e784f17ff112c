"""Carry out `comfyserverless run`: a file in, its pictures out.

Exit codes: 0 done; 1 the run failed, or the server cannot be reached; 2 what the user gave cannot run;
130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import random
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from comfyserverless.client.connection import Connection, ConnectionFailed, Refused, connect
from comfyserverless.client.edits import Edit, apply_edit, read_edits
from comfyserverless.client.flags import TOKEN_VARIABLE
from comfyserverless.client.interrupts import cancelled_by_signals, ended_like_ctrl_c
from comfyserverless.client.local import local_server
from comfyserverless.client.outputs import save_outputs
from comfyserverless.client.progress import ProgressLine
from comfyserverless.client.running import Ended, RunFailed, Runner, problem_lines
from comfyserverless.core.errors import ConfigError
from comfyserverless.graph.workflows.conversion import Conversion, ObjectInfo, convert
from comfyserverless.graph.workflows.document import WorkflowError
from comfyserverless.graph.workflows.files import WorkflowFile, read_file
from comfyserverless.graph.workflows.wording import Surroundings

_FAILED = 1
_BAD_INPUT = 2
_ENDED_BY_SIGINT = 130


def run(arguments: argparse.Namespace) -> int:
    """Run the file and print the paths of what it made, one a line; returns the exit code."""
    try:
        file = _read(arguments.file)
        where = local_server(_serve_flags(arguments)) if arguments.local else nullcontext(arguments.server)
        _check_folder(arguments.output)
        with ended_like_ctrl_c(), where as url:
            return asyncio.run(_run(file, arguments, url.rstrip("/")))
    except (WorkflowError, ConfigError, Refused) as exc:
        return _fail(str(exc), _BAD_INPUT)
    except TimeoutError:
        return _fail(f"not done after {arguments.timeout:g} s; the prompt was taken back", _FAILED)
    except (RunFailed, ConnectionFailed, OSError) as exc:
        return _fail(str(exc), _FAILED)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _fail("interrupted; the prompt was taken back", _ENDED_BY_SIGINT)


def _read(path: Path) -> WorkflowFile:
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror or exc}") from None
    return read_file(data, str(path))


def _check_folder(folder: Path) -> None:
    """Raise ConfigError if nothing can be saved in a folder, before anything runs for it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"--output {folder}: nothing can be saved there")


def _serve_flags(arguments: argparse.Namespace) -> list[str]:
    """Return the flags of the server that is started: its own folders, the user's models and inputs."""
    flags = []
    for kind, given in (("models", arguments.models_directory), ("input", arguments.input_directory)):
        folder = given if given is not None else Path(kind)
        if given is not None and not folder.is_dir():
            raise ConfigError(f"--{kind}-directory {folder}: there is no such folder")
        if folder.is_dir():
            flags += [f"--{kind}-directory", str(folder.absolute())]
    return flags


async def _run(file: WorkflowFile, arguments: argparse.Namespace, url: str) -> int:
    token = arguments.token or os.environ.get(TOKEN_VARIABLE)
    with cancelled_by_signals():
        async with connect(url, token) as connection:
            for path in await _made(file, arguments, connection, url):
                print(path)
    return 0


async def _made(
    file: WorkflowFile, arguments: argparse.Namespace, connection: Connection, url: str
) -> list[Path]:
    """Run the prompt of a file; returns where its outputs are saved."""
    object_info = await connection.get("/object_info")
    if not isinstance(object_info, dict):
        raise ConnectionFailed(f"{url} does not answer as ComfyUI does")
    converted = _prompt(file, object_info)
    prompt = converted.prompt
    for text in arguments.set:
        for edit in read_edits(text, prompt, converted.instances):
            apply_edit(await _uploaded(edit, connection), prompt, object_info)
    workflow = file.content if file.kind == "ui" else file.workflow
    ended = await _follow(Runner(connection, prompt, workflow), prompt, arguments)
    for line in (*ended.warnings, *(f"{title}: {text}" for title, text in ended.texts)):
        print(line, file=sys.stderr)
    return await save_outputs(connection, ended.files, arguments.output)


async def _follow(runner: Runner, prompt: dict[str, Any], arguments: argparse.Namespace) -> Ended:
    try:
        with ProgressLine(len(prompt), sys.stderr, is_silent=arguments.quiet) as progress:
            async with asyncio.timeout(arguments.timeout):
                return await runner.run(progress)
    except Refused as exc:
        lines = problem_lines(exc.answer, prompt)
        raise Refused(
            "\n".join([str(exc), *lines]) if not lines else "\n".join(lines), exc.status, exc.answer
        ) from exc


def _prompt(file: WorkflowFile, object_info: ObjectInfo) -> Conversion:
    """Return the prompt of a file. Raises WorkflowError for classes that the server does not have."""
    if file.kind == "ui":
        now = datetime.now(tz=UTC).astimezone()
        found = convert(file.content, object_info, Surroundings(now, random.Random()))
    else:
        found = Conversion(copy.deepcopy(file.content), _missing(file.content, object_info))
        for node in found.prompt.values():
            node.setdefault("inputs", {})
    if found.missing:
        listed = "; ".join(f"{kind} (node {', '.join(ids)})" for kind, ids in found.missing.items())
        raise WorkflowError(f"the server does not have these node classes: {listed}")
    if not found.prompt:
        raise WorkflowError("the workflow has no node that runs")
    return found


def _missing(prompt: dict[str, Any], object_info: ObjectInfo) -> dict[str, list[str]]:
    """Return class -> node ids for classes that are not declared. Raises WorkflowError for what is no node."""
    missing: dict[str, list[str]] = {}
    for node_id, node in prompt.items():
        kind = node.get("class_type") if isinstance(node, dict) else None
        if not isinstance(kind, str) or not isinstance(node.get("inputs", {}), dict):
            raise WorkflowError(f"node {node_id} has no class_type, or inputs that are no object")
        if kind not in object_info:
            missing.setdefault(kind, []).append(node_id)
    return missing


async def _uploaded(edit: Edit, connection: Connection) -> Edit:
    """Send the file that an edit names (`@FILE`); its name on the server becomes the value."""
    if not edit.value.startswith("@"):
        return edit
    where = f"--set {edit.node_id}.{edit.input_name}={edit.value}"
    try:
        name = await connection.upload(Path(edit.value[1:]))
    except OSError as exc:
        raise ConfigError(f"{where}: {exc.strerror or exc}") from None
    return Edit(edit.node_id, edit.input_name, name, is_uploaded=True)


def _fail(message: str, code: int) -> int:
    print(f"comfyserverless run: {message}", file=sys.stderr)
    return code
