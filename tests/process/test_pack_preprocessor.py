"""Serve a preprocessor pack: a torch model from its own model folder feeds a ControlNet on the workers."""

from __future__ import annotations

import importlib.util
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.support.client import Client
from tests.support.server import RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "line_detector"
SIZE = 64
COPIES = 3


def network() -> torch.nn.Module:
    """Return the pack's network with seeded weights."""
    spec = importlib.util.spec_from_file_location("line_network", PACK / "network.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(7)
    made: torch.nn.Module = module.LineNetwork().eval()
    return made


@pytest.fixture(scope="module")
def served(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    base = tmp_path_factory.mktemp("preprocessor")
    shutil.copytree(PACK, base / "custom_nodes" / "line_detector")
    models = base / "models"
    models.mkdir()
    for folder in tiny_models.iterdir():
        (models / folder.name).symlink_to(folder)
    (models / "line_detectors").mkdir()
    save_file(network().state_dict(), models / "line_detectors" / "lines.safetensors")
    running = RunningServer.start(ServerOptions(base, models=models))
    try:
        yield running
    finally:
        running.stop()


def graph(color: int, weights: str = "lines.safetensors") -> dict[str, Any]:
    """Return a graph that draws along the lines of a plain picture."""

    def node(kind: str, **inputs: Any) -> dict[str, Any]:
        return {"class_type": kind, "inputs": inputs}

    return {
        "picture": node("EmptyImage", width=SIZE, height=SIZE, batch_size=COPIES, color=color),
        "lines": node("LineDetector", image=["picture", 0], weights=weights, resolution=SIZE),
        "one": node("ImageFromBatch", image=["lines", 0], batch_index=0, length=1),
        "loads": node("PreviewAny", source=["lines", 2]),
        "shown": node("PreviewImage", images=["one", 0]),
        "model": node("CheckpointLoaderSimple", ckpt_name="sd15_tiny.safetensors"),
        "text": node("CLIPTextEncode", clip=["model", 1], text="lines"),
        "net": node("ControlNetLoader", control_net_name="sd15_canny_tiny.safetensors"),
        "led": node(
            "ControlNetApply", conditioning=["text", 0], control_net=["net", 0], image=["one", 0], strength=1.0
        ),
        "latent": node("EmptyLatentImage", width=SIZE, height=SIZE, batch_size=1),
        "sampled": node(
            "KSampler",
            model=["model", 0],
            positive=["led", 0],
            negative=["text", 0],
            latent_image=["latent", 0],
            seed=1,
            steps=2,
            cfg=5.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "decoded": node("VAEDecode", samples=["sampled", 0], vae=["model", 2]),
        "saved": node("SaveImage", images=["decoded", 0], filename_prefix="lines"),
    }


async def pixels_of(client: Client, item: dict[str, str]) -> np.ndarray[Any, Any]:
    async with client.session.get("/view", params=item) as answer:
        return np.asarray(Image.open(io.BytesIO(await answer.read())).convert("RGB"))


async def test_lines_of_the_pack_are_its_networks_and_lead_the_sampler(served: RunningServer) -> None:
    async with Client(served.url) as client:
        info = await client.get("/object_info/LineDetector")
        first = await client.run(graph(0x3060C0))
        second = await client.run(graph(0xC06030))
    async with Client(served.url) as client:
        assert info["LineDetector"]["input"]["required"]["weights"][0] == ["lines.safetensors"]
        for result in (first, second):
            assert result.outcome == "execution_success", result.messages[-2:]
        # The network is loaded once and stays with the node.
        assert [run.history["outputs"]["loads"]["text"] for run in (first, second)] == [["1"], ["1"]]
        shown = await pixels_of(client, first.history["outputs"]["shown"]["images"][0])
        pictures = [
            await pixels_of(client, run.history["outputs"]["saved"]["images"][0]) for run in (first, second)
        ]
    color = torch.tensor([0x30, 0x60, 0xC0]) / 255
    with torch.no_grad():
        lines = network()(color.view(1, 3, 1, 1).expand(1, 3, SIZE, SIZE))[0, 0]
    expected = (lines.numpy() * 255.0).clip(0, 255).astype(np.uint8)
    assert np.abs(shown[..., 0].astype(int) - expected).max() <= 1
    assert (pictures[0] != pictures[1]).any()
    bars = [data for kind, data in first.messages if kind == "progress" and data["node"] == "lines"]
    assert [(bar["value"], bar["max"]) for bar in bars] == [(step, COPIES) for step in range(1, COPIES + 1)]


async def test_weights_that_are_not_there_are_refused_with_those_that_are(served: RunningServer) -> None:
    async with (
        Client(served.url) as client,
        client.session.post("/prompt", json={"prompt": graph(0, "other.safetensors")}) as answer,
    ):
        assert answer.status == 400
        (problem,) = (await answer.json())["node_errors"]["lines"]["errors"]
    assert problem["type"] == "value_not_in_list"
    assert "lines.safetensors" in problem["details"]
