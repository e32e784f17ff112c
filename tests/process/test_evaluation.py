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
from pathlib import Path

import pytest
from PIL import Image

from comfyserverless.demo.places import DEMO_CHECKPOINT
from comfyserverless.training.evaluation import add_evaluate_flags, run_evaluate
from comfyserverless.training.evaluation.asking import Artist, AskingError, question_graph
from comfyserverless.training.evaluation.questions import single_questions
from comfyserverless.training.evaluation.samples import run_samples
from tests.support.drawing import GRAPHS, node, pixels
from tests.support.server import TEST_ENV, RunningServer, group_ends


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


def queue_length(server: RunningServer) -> int:
    """Return how many prompts wait or run."""
    with urllib.request.urlopen(f"{server.url}/prompt", timeout=30) as answer:
        return int(json.load(answer)["exec_info"]["queue_remaining"])


def test_what_is_not_drawn_when_an_evaluation_ends_is_taken_back(server: RunningServer) -> None:
    questions = single_questions(40, seed=5)
    pictures = Artist(server.url).draw([question_graph(question, DEMO_CHECKPOINT) for question in questions])
    next(pictures)
    pictures.close()
    until_s = time.monotonic() + 5  # 39 pictures take much longer
    while (left := queue_length(server)) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert left == 0


@pytest.mark.timeout(90)
def test_an_evaluation_that_is_told_to_end_ends_its_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "comfyserverless", "demo", "evaluate", "--prompts", "50"]
    environment = os.environ | TEST_ENV | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while process.poll() is None and not list(tmp_path.glob("*/server.log")):
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert group_ends(process.pid)
