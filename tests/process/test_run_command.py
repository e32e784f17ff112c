"""`comfyserverless run`: a file in, its pictures out, against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyserverless.graph.workflows.files import read_file
from tests.support.server import PATIENCE_S, ROOT, TEST_ENV, RunningServer, free_port

PICTURES = ROOT / "graphs" / "pictures"
PAGE_GRAPH = ROOT / "web" / "default_graph.json"
ENDLESS = (
    *("--set", "KSampler.steps=10000"),
    *("--set", "EmptyLatentImage.width=512"),
    *("--set", "EmptyLatentImage.height=512"),
)
"""Makes a run take many minutes on any machine."""

CHECKPOINT = "CheckpointLoaderSimple.ckpt_name=shapes_v2.safetensors"


def start(folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command in a folder."""
    command = [sys.executable, "-m", "comfyserverless", "run", *flags]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | TEST_ENV | {"PYTHONPATH": path} | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_interrupts,
    )


def listen_to_interrupts() -> None:
    """Give back what a shell takes from what it starts in the background; the command respects that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run(folder: Path, *flags: str) -> tuple[int, list[str], str]:
    """Run the command; returns exit code, lines of stdout, and stderr."""
    process = start(folder, *flags)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.splitlines(), err


def get(server: RunningServer, path: str) -> Any:
    """Return the JSON of a GET."""
    with urllib.request.urlopen(server.url + path, timeout=60) as answer:
        return json.load(answer)


def test_picture_runs_again_with_a_changed_input(server: RunningServer, tmp_path: Path) -> None:
    picture = str(PICTURES / "text_to_image.png")
    code, lines, err = run(
        tmp_path,
        picture,
        "--server",
        server.url,
        "--set",
        "3.steps=2",
        "--set",
        "KSampler.seed=9",
        "--output",
        "out",
    )
    assert code == 0, err
    saved = [tmp_path / line for line in lines]
    assert [path.parent for path in saved] == [tmp_path / "out"]
    made = read_file(saved[0].read_bytes(), "made").content
    assert (made["3"]["inputs"]["steps"], made["3"]["inputs"]["seed"]) == (2, 9)
    with Image.open(saved[0]) as image:
        assert image.size == (128, 128)
    assert run(tmp_path, picture, "--server", server.url, "--set", "3.steps=2", "--output", "out")[0] == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_workflow_of_the_page_runs_and_is_kept_in_the_picture(server: RunningServer, tmp_path: Path) -> None:
    small = ["EmptyLatentImage.width=64", "EmptyLatentImage.height=64", "KSampler.steps=1", CHECKPOINT]
    flags = [part for edit in small for part in ("--set", edit)]
    code, lines, err = run(tmp_path, str(PAGE_GRAPH), "--server", server.url, *flags)
    assert code == 0, err
    made = read_file((tmp_path / lines[0]).read_bytes(), "made")
    assert made.workflow == json.loads(PAGE_GRAPH.read_text())
    assert made.content["5"]["inputs"]["width"] == 64


def test_failed_run_names_the_node(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_text("no picture")
    graph = str(ROOT / "graphs" / "image_to_image.json")
    code, lines, err = run(tmp_path, graph, "--server", server.url, "--set", "LoadImage.image=@broken.png")
    assert (code, lines) == (1, [])
    assert "(LoadImage): " in err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--set", "KSampler.steps=many"), "not a whole number"),
        (("--set", "Nobody.steps=3"), "there is no such node; nodes: 3 (KSampler)"),
        (("--set", "3.positive=x"), "takes CONDITIONING from another node"),
    ],
)
def test_bad_flags_are_explained(
    server: RunningServer, tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    code, lines, err = run(tmp_path, str(PICTURES / "text_to_image.png"), "--server", server.url, *flags)
    assert (code, lines) == (2, [])
    assert reason in err


def test_class_that_the_server_lacks_is_named(server: RunningServer, tmp_path: Path) -> None:
    node = {"id": 5, "type": "NodeOfAPack", "mode": 0, "inputs": [], "outputs": []}
    (tmp_path / "w.json").write_text(json.dumps({"version": 0.4, "nodes": [node], "links": []}))
    code, _, err = run(tmp_path, "w.json", "--server", server.url)
    assert code == 2
    assert "does not have these node classes: NodeOfAPack (node 5)" in err


def test_prompt_that_the_server_refuses_is_explained(server: RunningServer, tmp_path: Path) -> None:
    graph = json.loads((ROOT / "graphs" / "text_to_image.json").read_text())
    del graph["3"]["inputs"]["seed"]
    (tmp_path / "w.json").write_text(json.dumps(graph))
    code, _, err = run(tmp_path, "w.json", "--server", server.url)
    assert code == 2
    assert "node 3 (KSampler): A required input is not given: seed" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_takes_its_prompt_back(
    server: RunningServer, tmp_path: Path, number: signal.Signals
) -> None:
    graph = str(ROOT / "graphs" / "text_to_image.json")
    process = start(tmp_path, graph, "--server", server.url, *ENDLESS)
    wait_until(lambda: len(get(server, "/queue")["queue_running"]) == 1, process)
    process.send_signal(number)
    try:
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the prompt was taken back" in err
    wait_until(lambda: get(server, "/queue")["queue_running"] == [], None)


def test_run_that_takes_too_long_is_taken_back(server: RunningServer, tmp_path: Path) -> None:
    graph = str(ROOT / "graphs" / "text_to_image.json")
    code, _, err = run(tmp_path, graph, "--server", server.url, *ENDLESS, "--timeout", "2")
    assert code == 1
    assert "not done after 2 s" in err
    wait_until(lambda: get(server, "/queue")["queue_running"] == [], None)


def test_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    code, _, err = run(tmp_path, str(PICTURES / "pair.png"), "--server", nobody)
    assert code == 1
    assert f"cannot reach {nobody}" in err


def test_local_run_leaves_a_picture_and_nothing_else(tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    picture = str(PICTURES / "text_to_image.png")
    process = start(work, picture, "--local", "--set", "KSampler.steps=1", env={"TMPDIR": str(temp)})
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert [(work / line).is_file() for line in out.splitlines()] == [True]
    assert list(temp.glob("comfyserverless*")) == []


def test_local_run_that_is_told_to_end_takes_its_server_with_it(tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    picture = str(PICTURES / "text_to_image.png")
    process = start(tmp_path, picture, "--local", *ENDLESS, env={"TMPDIR": str(temp)})
    # A file alone may be there before its server.
    wait_until(
        lambda: any(log.stat().st_size for log in temp.glob("comfyserverless-run-*/server.log")), process
    )
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert list(temp.glob("comfyserverless*")) == []


def wait_until(is_so: Any, process: subprocess.Popen[str] | None, within_s: float = PATIENCE_S) -> None:
    """Wait for what lasts once it is so."""
    until_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until_s
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
