"""Prove that the overhead measurement runs, compares like with like, and ends in one JSON line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run `comfyserverless bench overhead` with flags."""
    command = [sys.executable, "-m", "comfyserverless", "bench", "overhead", *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_overhead_compares_two_sides_that_make_the_same_picture() -> None:
    done = bench("--rounds", "2", "--steps", "4")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["bench"] == "overhead"
    assert last["largest_difference"] <= 1
    assert last["ratio"] > 0
    assert last["us_per_invocation"] * 11e-6 < last["server_s"], "11 invocations: 4 steps and 7 others"


def test_missing_checkpoint_is_named() -> None:
    done = bench("--checkpoint", "/nowhere/model.safetensors")
    assert done.returncode == 2
    assert "/nowhere/model.safetensors" in done.stderr
