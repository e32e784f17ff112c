"""What does not fit the machine's memory is refused before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core.errors import CapacityError, PromptError
from comfyserverless.functions.limits import room
from comfyserverless.functions.registry import FUNCTIONS

SIDE = 16384
PIXEL = torch.zeros(1, 1, 1, 3)

#: Each asks for more than any machine has, with the largest values of its widgets or a few nodes in a row.
HUGE: Mapping[str, dict[str, Any]] = {
    "image.empty": {"width": SIDE, "height": SIDE, "batch_size": 4096, "color": 0},
    "latent.empty": {"width": SIDE, "height": SIDE, "batch_size": 4096 * 64},
    "mask.solid": {"value": 1.0, "width": SIDE * 1024, "height": SIDE * 1024},
    "image.repeat": {"images": PIXEL.expand(4096, 16, SIDE, 3), "amount": 4096},
    "latent.repeat": {
        "samples": torch.zeros(1, 4, 1, 1).expand(4096, 4, 99, 99),
        "noise_mask": None,
        "amount": 1 << 16,
    },
    "image.scale": {
        "images": PIXEL.expand(4096, 1, 1, 3),
        "width": SIDE,
        "height": SIDE,
        "method": "lanczos",
        "crop": "disabled",
    },
    "image.pad": {
        "images": PIXEL.expand(4096, 1, 1, 3),
        "left": SIDE,
        "top": SIDE,
        "right": 0,
        "bottom": 0,
        "feathering": 0,
    },
    "image.frame": {
        "images": PIXEL.expand(4096, 1, 1, 3),
        "width": SIDE,
        "height": SIDE,
        "color": "white",
        "method": "area",
    },
}


@pytest.mark.parametrize("name", HUGE)
def test_what_no_machine_can_hold_is_refused_with_its_shape_and_size(name: str) -> None:
    with pytest.raises(PromptError, match=r"of shape \[.*\] would take .* [TP]B, and this machine has"):
        FUNCTIONS[name].execute({}, **HUGE[name])


def test_what_does_not_fit_now_may_fit_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_meminfo_bytes", lambda *_: 100)
    monkeypatch.setattr(room, "total_memory_bytes", lambda: 1000)
    room.check_room((25,), "images")
    with pytest.raises(CapacityError, match="would take 104 bytes, and 100 bytes of memory are free now"):
        room.check_room((26,), "images")


def test_memory_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 64 kB\n")
    assert room.total_memory_bytes(tmp_path) == 64 << 10
    other = tmp_path / "other"
    (other / "sys/fs/cgroup").mkdir(parents=True)
    (other / "proc").mkdir()
    (other / "proc/meminfo").write_text("MemTotal: 64 kB\n")
    (other / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert room.total_memory_bytes(other) == 4096
