"""Compare every recorded case with what the functions compute in this process.

Bar: latents within 1e-4 of their standard deviation; images within one level, at least 99.9 % of the values
equal. The recordings were made with AVX2 kernels: other instruction sets round differently, by about 1e-5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from comfyserverless.models.pool import ModelPool
from tests.support.direct import DirectRun, run_prompt

HERE = Path(__file__).parent
CASES = sorted(path.name for path in (HERE / "cases").iterdir())
MAX_LATENT_DIFFERENCE_RATIO = 1e-4
MIN_EQUAL_RATIO = 0.999


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool()


def compare(recorded: dict[str, Any], folder: Path, index: int, output: Tensor) -> None:
    if recorded["kind"] == "latent":
        expected = load_file(folder / recorded["file"])["latent_tensor"]
        assert output.shape == expected.shape
        assert float((output - expected).abs().max() / expected.std()) <= MAX_LATENT_DIFFERENCE_RATIO
    else:
        pixels = np.asarray(Image.open(folder / recorded["file"])).astype(int)
        difference = np.abs((output[index] * 255).clamp(0, 255).to(torch.uint8).numpy().astype(int) - pixels)
        assert difference.max() <= 1
        assert (difference == 0).mean() >= MIN_EQUAL_RATIO


@pytest.mark.parametrize("case", CASES)
def test_case_gives_the_recorded_results(case: str, pool: ModelPool, tiny_models: Path) -> None:
    folder = HERE / "cases" / case
    workflow = json.loads((folder / "workflow.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())["outputs"]
    outputs = run_prompt(DirectRun(pool, tiny_models, HERE / "inputs"), workflow, list(expected))
    for node, files in expected.items():
        for index, recorded in enumerate(files):
            compare(recorded, folder, index, outputs[node])
