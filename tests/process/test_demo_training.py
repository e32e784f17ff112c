"""Train the demo models for a few steps in two processes, by the command, and load what comes out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from comfyserverless.core.values import ControlNetRef, FileRef, LoraRef, ModelRef
from comfyserverless.demo.places import DEMO_CHECKPOINT, DEMO_CONTROLNET, DEMO_LORA
from comfyserverless.models.pool import ModelPool
from tests.support.server import PATIENCE_S, TEST_ENV, group_ends


def train(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "comfyserverless", "demo", "train", "--out", str(out), *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=os.environ | TEST_ENV, check=False
    )


def reference(path: Path) -> FileRef:
    info = path.stat()
    return FileRef(str(path), info.st_size, info.st_mtime_ns)


@pytest.mark.timeout(1200)
def test_every_stage_runs_in_two_processes_and_its_file_loads(tmp_path: Path) -> None:
    first = train(tmp_path, "--smoke", "--processes", "2")
    assert first.returncode == 0, first.stderr
    assert f"--models-dir {tmp_path}" in first.stdout
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.safetensors"))
    assert written == sorted(
        [
            f"checkpoints/{DEMO_CHECKPOINT}",
            f"loras/{DEMO_LORA}",
            f"controlnet/{DEMO_CONTROLNET}",
            "embeddings/night_star.safetensors",
        ]
    )
    other = train(tmp_path, "--smoke", "--processes", "2", "--seed", "1")
    assert other.returncode == 2
    assert f"{tmp_path / 'work'}: holds states of a training with another" in other.stderr
    pool, base = ModelPool(), reference(tmp_path / "checkpoints" / DEMO_CHECKPOINT)
    lora = LoraRef(reference(tmp_path / "loras" / DEMO_LORA), 1.0)
    x, t, context = torch.zeros(1, 4, 8, 8), torch.tensor([500]), torch.zeros(1, 77, 64)
    assert pool.diffusion(ModelRef(base, (lora,))).predict(x, t, context).isfinite().all()
    control = pool.controlnet(ControlNetRef(reference(tmp_path / "controlnet" / DEMO_CONTROLNET)))
    assert len(control.residuals(x, t, context, torch.zeros(1, 3, 64, 64))) == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [(("--processes", "0"), "--processes 0: allowed are 1 to 64"), (("--seed", "-1"), "--seed -1")],
)
def test_a_bad_flag_is_named(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = train(tmp_path / "out", "--smoke", *flags)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = train(tmp_path / "file" / "out", "--smoke")
    assert result.returncode == 2
    assert str(tmp_path / "file" / "out") in result.stderr


def test_a_folder_that_a_file_stands_in_for_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "loras").write_text("")
    result = train(tmp_path, "--smoke")
    assert result.returncode == 2
    assert result.stderr.startswith(f"comfyserverless: {tmp_path / 'loras'}: ")


def test_a_damaged_state_ends_the_training_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "autoencoder.pt").write_text("junk")
    result = train(tmp_path, "--smoke", "--processes", "2")
    assert result.returncode == 2
    assert f"comfyserverless: {tmp_path / 'work' / 'autoencoder.pt'}: damaged" in result.stderr
    assert "Traceback" not in result.stderr


def hear_sigint() -> None:
    """Undo what a shell does to commands in the background: they ignore Ctrl-C, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def has_begun(pid: int, temporary: Path) -> bool:
    """Tell whether a training has its folder, and has begun to start other processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return bool(children) and any(temporary.glob("comfyserverless-*"))


def has_met(_pid: int, temporary: Path) -> bool:
    """Tell whether the processes of a training come together."""
    return any(temporary.glob("comfyserverless-*/meeting*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [has_begun, has_met])
def test_a_training_that_is_ended_takes_its_processes_along(
    tmp_path: Path, number: signal.Signals, moment: Callable[[int, Path], bool]
) -> None:
    command = [sys.executable, "-m", "comfyserverless", "demo", "train", "--processes", "2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | TEST_ENV | {"TMPDIR": str(temporary)},
        start_new_session=True,
        preexec_fn=hear_sigint,
    ) as process:
        while process.poll() is None and not moment(process.pid, temporary):
            time.sleep(0.05)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert list(temporary.glob("comfyserverless-*")) == []
    assert group_ends(process.pid)
