"""Inpaint on the real server: what the mask keeps comes back to the last bit, and the rest is painted."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from tests.support.client import Client
from tests.support.parity import INPUTS, workflow_of
from tests.support.server import RunningServer


def inpainting(sampler: str, batch: int) -> dict[str, Any]:
    """Return the recorded inpainting graph with another sampler and batch; it saves what it starts from too."""
    graph = workflow_of("inpaint_set_latent_noise_mask")
    graph["7"]["inputs"]["sampler_name"] = sampler
    graph["20"] = {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["6", 0], "amount": batch}}
    graph["7"]["inputs"]["latent_image"] = ["20", 0]
    graph["21"] = {"class_type": "SaveLatent", "inputs": {"samples": ["20", 0], "filename_prefix": "original"}}
    return graph


@pytest.mark.parametrize(
    ("sampler", "batch"), [("euler", 1), ("euler_ancestral", 2), ("dpmpp_2m_sde", 1), ("ddim", 1)]
)
async def test_only_what_is_masked_changes(server: RunningServer, sampler: str, batch: int) -> None:
    for path in INPUTS.iterdir():
        shutil.copy(path, server.folder("input") / path.name)
    async with Client(server.url) as client:
        run = await client.run(inpainting(sampler, batch))
        assert run.outcome == "execution_success", run.messages[-3:]
        painted, original = [await _latent(client, run.history["outputs"][node]) for node in ("8", "21")]
    changed = (painted != original).any(axis=1)
    assert painted.shape == (batch, 4, 8, 12)
    assert 0.2 < changed.mean() < 0.4
    assert not changed[:, :, :5].any()
    assert (np.abs(painted - original)[:, :, 2:5, 6:9] > 0.1).mean() > 0.9


async def _latent(client: Client, output: dict[str, Any]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = load(await client.image(output["latents"][0]))["latent_tensor"]
    return found
