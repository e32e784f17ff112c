"""T2I-Adapters on a real server of two workers: alone, beside a ControlNet, and under a patch of the model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.torch import save_file

from tests.support.client import Client
from tests.support.make_tiny_models import build
from tests.support.parity import INPUTS, workflow_of
from tests.support.server import RunningServer
from tests.unit.models.adapters.files import full_adapter

Graph = dict[str, Any]


def models_with_adapter(tiny_models: Path, folder: Path) -> Path:
    for name in ("checkpoints", "controlnet"):
        (folder / name).mkdir(parents=True)
        for path in (tiny_models / name).glob("sd15_*.safetensors"):
            (folder / name / path.name).symlink_to(path)
    (folder / "t2i_adapter").mkdir()
    adapter = build(full_adapter(32), "adapter", torch.float32)
    save_file(adapter, folder / "t2i_adapter" / "grey.safetensors")
    return folder


def controlled(
    name: str, strength: float = 1.0, start: float = 0.0, end: float = 1.0, *, patch: str | None = None
) -> Graph:
    """Return a recorded graph with another file and range of its ControlNet, in three steps."""
    graph = workflow_of("cn_sd15_full")
    graph["4"]["inputs"]["control_net_name"] = name
    graph["6"]["inputs"] |= {"strength": strength, "start_percent": start, "end_percent": end}
    graph["8"]["inputs"]["steps"] = 3
    if patch is not None:
        graph["p"] = {"class_type": patch, "inputs": {"model": ["1", 0], "scale": 0.0}}
        graph["8"]["inputs"]["model"] = ["p", 0]
    return graph


def followed_by(graph: Graph, name: str) -> Graph:
    """Return a graph with one more ControlNet after its own."""
    changed = {**graph, "8": {"class_type": "KSampler", "inputs": dict(graph["8"]["inputs"])}}
    changed["l"] = {"class_type": "ControlNetLoader", "inputs": {"control_net_name": name}}
    chained = {"positive": ["6", 0], "negative": ["6", 1], "control_net": ["l", 0]}
    changed["c"] = {"class_type": "ControlNetApplyAdvanced", "inputs": graph["6"]["inputs"] | chained}
    changed["8"]["inputs"] |= {"positive": ["c", 0], "negative": ["c", 1]}
    return changed


async def latent(client: Client, graph: Graph) -> NDArray[np.float32]:
    run = await client.run(graph)
    assert run.outcome == "execution_success", run.messages[-3:]
    entry = next(out["latents"][0] for out in run.history["outputs"].values() if out.get("latents"))
    found: NDArray[np.float32] = load(await client.image(entry))["latent_tensor"]
    return found


async def test_adapter_acts_as_far_as_it_is_told_to(
    start_server: Callable[..., RunningServer], tiny_models: Path, tmp_path: Path
) -> None:
    server = start_server("--workers", "2", models=models_with_adapter(tiny_models, tmp_path / "models"))
    shutil.copy(INPUTS / "golden_96x64.png", server.folder("input"))
    adapter, net = "grey.safetensors", "sd15_canny_tiny.safetensors"
    graphs = {
        "nothing": controlled(adapter, 0.0),
        "adapter": controlled(adapter),
        "half": controlled(adapter, 0.5),
        "late": controlled(adapter, start=0.2),
        "patched": controlled(adapter, patch="PerturbedAttentionGuidance"),
        "net": controlled(net),
        "both": followed_by(controlled(adapter), net),
        "both, other order": followed_by(controlled(net), adapter),
    }
    async with Client(server.url) as client:
        found = {name: await latent(client, graph) for name, graph in graphs.items()}
    spread = float(found["nothing"].std())

    def difference(one: str, other: str) -> float:
        return float(np.abs(found[one] - found[other]).max()) / spread

    assert difference("adapter", "patched") < 1e-4
    assert difference("both", "both, other order") < 1e-3
    different = ["nothing", "adapter", "half", "late", "net", "both"]
    alike = [(a, b) for a in different for b in different if a < b and difference(a, b) < 0.001]
    assert alike == []
