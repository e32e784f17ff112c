"""Compare what the server makes of a recorded case with what ComfyUI made of it.

The bar: latents within 1e-4 of the recorded latent's standard deviation; images within one level, and at
least 99.9 % of the values equal.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load as load_safetensors

from tests.support.client import Client

CASES = Path(__file__).parents[1] / "parity" / "cases"
INPUTS = Path(__file__).parents[1] / "parity" / "inputs"
LATENT_RATIO = 1e-4
EQUAL_SHARE = 0.999


@dataclass(frozen=True, slots=True)
class Comparison:
    """One recorded output against ours. difference: in units of the bar (<= 1 passes); 0 is bit-identical."""

    output: str
    kind: str
    difference: float
    is_identical: bool


def case_names() -> list[str]:
    """List the recorded cases that ship with the tests."""
    return sorted(path.name for path in CASES.iterdir())


def workflow_of(case: str) -> dict[str, Any]:
    """Return a case's API graph."""
    graph: dict[str, Any] = json.loads((CASES / case / "workflow.json").read_text())
    return graph


async def compare(client: Client, case: str) -> list[Comparison]:
    """Run a case on the server and compare every recorded output. Raises AssertionError if it fails to run."""
    result = await client.run(workflow_of(case))
    assert result.outcome == "execution_success", result.messages[-3:]
    expected = json.loads((CASES / case / "expected.json").read_text())
    found = []
    for node, records in expected["outputs"].items():
        output = result.history["outputs"][node]
        entries = output.get("images") or output.get("latents") or []
        assert len(entries) == len(records), (node, output)
        for record, entry in zip(records, entries, strict=True):
            data = await client.image(entry)
            golden = (CASES / case / record["file"]).read_bytes()
            compare_one = _compare_latents if record["kind"] == "latent" else _compare_images
            found.append(compare_one(f"{node}/{record['file']}", data, golden))
    return found


def _compare_latents(output: str, data: bytes, golden: bytes) -> Comparison:
    ours, theirs = (load_safetensors(each)["latent_tensor"] for each in (data, golden))
    assert ours.shape == theirs.shape, (output, ours.shape, theirs.shape)
    assert ours.dtype == theirs.dtype, (output, ours.dtype, theirs.dtype)
    bar = LATENT_RATIO * max(float(theirs.std()), 1e-12)
    worst = float(np.abs(ours - theirs).max(initial=0.0))
    return Comparison(output, "latent", worst / bar, bool(np.array_equal(ours, theirs)))


def _compare_images(output: str, data: bytes, golden: bytes) -> Comparison:
    ours, theirs = _pixels(data), _pixels(golden)
    assert ours.shape == theirs.shape, (output, ours.shape, theirs.shape)
    levels = np.abs(ours.astype(np.int16) - theirs.astype(np.int16))
    equal = float((levels == 0).mean())
    difference = max(float(levels.max(initial=0)), (1 - equal) / (1 - EQUAL_SHARE))
    return Comparison(output, "image", difference, equal == 1.0)


def _pixels(data: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)
