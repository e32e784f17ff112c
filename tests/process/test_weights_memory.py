"""A worker's memory stays within its budgets while many model files are used in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).parents[2]
FILES = 20
FILE_BYTES = 24_000_000
BUDGET_BYTES = 96 << 20

# Runs in a process of its own, whose memory is nobody else's. It uses every file twice, in turn, and reads what
# the kernel counts for it; one file is used before the count begins, so that libraries have what they need.
PROBE = """
import ctypes, json, re, sys

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, of which the kernel counts what nobody has touched
import torch
from comfyserverless.bench.direct import file_ref
from comfyserverless.core.values import ClipRef
from comfyserverless.models.pool import ModelPool, PoolOptions
from pathlib import Path

def resident_bytes():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

torch.set_num_threads(1)
folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
files = sorted(folder.glob("*.safetensors"))
tight = ModelPool(options=PoolOptions(**options))
warm = ModelPool()
warm.text(ClipRef((file_ref(files[0]),))).encode("a cat")
warm.unload_all()
before, peak, weights, host, sums = resident_bytes(), 0, 0, 0, []
for round in range(2):
    for file in files:
        cond, _ = tight.text(ClipRef((file_ref(file),))).encode("a cat")
        sums.append(cond.sum().item())
        peak = max(peak, resident_bytes() - before)
        weights = max(weights, tight.weights_bytes)
        host = max(host, tight.keeper.transfer.host.total_bytes)
tight.unload_all()
print(json.dumps({
    "peak": peak, "weights": weights, "host": host, "after": resident_bytes() - before,
    "is_same": sums[:len(files)] == sums[len(files):], "distinct": len(set(sums)),
}))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write text models that differ in one tensor; the token embedding makes up half of each."""
    from tests.support.make_tiny_models import Spec, build, clip_hf

    folder = tmp_path_factory.mktemp("many")
    shape = {"d": 128, "ff": 512, "layers": 30, "vocab": 49408}
    tensors = build(Spec().put("", clip_hf(**shape, proj=False)), "many", torch.float16)
    size_bytes = sum(tensor.nbytes for tensor in tensors.values())
    assert size_bytes > FILE_BYTES
    for number in range(FILES):
        bias = tensors["text_model.final_layer_norm.bias"] + 0.01 * number
        save_file(tensors | {"text_model.final_layer_norm.bias": bias}, folder / f"{number:02}.safetensors")
    return folder


def probe(folder: Path, **options: object) -> dict[str, int]:
    command = [sys.executable, "-c", PROBE, str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return figures


def test_twenty_files_in_turn_stay_within_the_device_budget(files: Path) -> None:
    got = probe(files, device_bytes=BUDGET_BYTES)
    assert BUDGET_BYTES / 2 < got["weights"] <= BUDGET_BYTES
    assert got["peak"] <= BUDGET_BYTES * 1.25, "what the kernel counts, activations included"
    assert got["after"] < BUDGET_BYTES * 0.25, "what is freed goes back to the system"
    assert got["is_same"]
    assert got["distinct"] == FILES


def test_the_host_tier_has_a_budget_of_its_own(files: Path) -> None:
    got = probe(files, device_bytes=BUDGET_BYTES, host_bytes=BUDGET_BYTES)
    assert BUDGET_BYTES / 2 < got["host"] <= BUDGET_BYTES
    assert got["peak"] <= 2 * BUDGET_BYTES * 1.25
    assert got["is_same"]
