"""Run the evaluation and the samples as a user does, with servers of their own and running ones."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyserverless.demo.places import DEMO_CHECKPOINT
from comfyserverless.training.evaluation import add_evaluate_flags, run_evaluate
from comfyserverless.training.evaluation.asking import Artist, AskingError, question_graph
from comfyserverless.training.evaluation.questions import single_questions
from comfyserverless.training.evaluation.samples import run_samples
from tests.support.drawing import GRAPHS, node, pixels
from tests.support.server import PATIENCE_S, TEST_ENV, RunningServer, group_ends

TRIES = 5


def evaluate(*argv: str) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser()
    add_evaluate_flags(parser)
    return run_evaluate(parser.parse_args(argv), argv)


def test_evaluation_starts_a_server_and_prints_figures_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = evaluate("--prompts", "2", "--seed", "1", "--sheet", str(tmp_path / "sheet.png"))
    *table, last = capsys.readouterr().out.splitlines()
    figures = json.loads(last)
    assert table[1].split()[:2] == ["single", "2"]
    assert (figures["evaluation"], figures["prompts"]) == (DEMO_CHECKPOINT, 2)
    assert figures["background"] == 1
    assert code == (0 if figures["passed"] else 1)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 2 * 128


def test_checkpoint_that_the_server_lacks_ends_the_evaluation_and_is_named(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--server", server.url, "--prompts", "1", "--checkpoint", "nothing.safetensors") == 2
    assert "nothing.safetensors" in capsys.readouterr().err


def test_samples_upload_their_inputs_and_bring_pictures(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    shutil.copy(GRAPHS / "inputs" / "circle.png", tmp_path / "inputs" / "uploaded_circle.png")
    graph = {
        "load": node("LoadImage", image="uploaded_circle.png"),
        "save": node("PreviewImage", images=["load", 0]),
    }
    (tmp_path / "copy.json").write_text(json.dumps(graph))
    (tmp_path / "copy.expect.json").write_text("{}")
    pictures = run_samples(tmp_path, server.url)
    assert list(pictures) == ["copy"]
    expected = pixels((GRAPHS / "inputs" / "circle.png").read_bytes())
    assert (pixels(pictures["copy"]) == expected).all()


def test_graph_that_ends_without_a_picture_is_an_error(server: RunningServer) -> None:
    latents_only = {
        "canvas": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "save": node("SaveLatent", samples=["canvas", 0], filename_prefix="latent"),
    }
    with pytest.raises(AskingError, match="without a picture"):
        list(Artist(server.url).draw([latents_only]))


def get(server: RunningServer, path: str) -> Any:
    """Return the JSON of a GET."""
    with urllib.request.urlopen(f"{server.url}{path}") as answer:
        return json.load(answer)


def test_what_is_not_drawn_when_an_evaluation_ends_is_taken_back(server: RunningServer) -> None:
    count = 40
    for seed in range(TRIES):
        before = completed(server)
        questions = single_questions(count, seed=seed)
        pictures = Artist(server.url).draw(
            [question_graph(question, DEMO_CHECKPOINT) for question in questions]
        )
        next(pictures)
        pictures.close()
        until_s = time.monotonic() + PATIENCE_S
        while left := get(server, "/prompt")["exec_info"]["queue_remaining"]:
            assert time.monotonic() < until_s, left
            time.sleep(0.02)
        if completed(server) - before < count:
            return
    raise AssertionError("all pictures were drawn before any could be taken back")


def completed(server: RunningServer) -> int:
    """Return how many prompts have ended well."""
    return int(get(server, "/api/jobs?status=completed&limit=1")["pagination"]["total"])


def says_anything(logs: Iterable[Path]) -> bool:
    """Tell whether a server has begun to write its log; a file alone may be there before its server."""
    return any(log.stat().st_size for log in logs)


def test_an_evaluation_that_is_told_to_end_ends_its_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "comfyserverless", "demo", "evaluate", "--prompts", "50"]
    environment = os.environ | TEST_ENV | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while process.poll() is None and not says_anything(tmp_path.glob("*/server.log")):
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert group_ends(process.pid)
