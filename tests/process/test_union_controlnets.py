"""Union ControlNets on a real server of two workers: types, none, several nets at once, and packs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save_file

from tests.support.client import Client
from tests.support.make_tiny_models import SDXL_UNET, build
from tests.support.server import RunningServer, ServerOptions
from tests.unit.models.unions.files import released, union_controlnet

PACK = Path(__file__).parents[1] / "support" / "packs" / "model_nodes"
CHECKPOINT, PLAIN = "sdxl_tiny.safetensors", "sdxl_canny_tiny.safetensors"
SIX, PROMAX = "union.safetensors", "promax.safetensors"

Graph = dict[str, Any]


@pytest.fixture(scope="module")
def served(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    base = tmp_path_factory.mktemp("unions")
    shutil.copytree(PACK, base / "custom_nodes" / PACK.name, ignore=shutil.ignore_patterns("__pycache__"))
    models = base / "models"
    for name in (f"checkpoints/{CHECKPOINT}", f"controlnet/{PLAIN}"):
        (models / name).parent.mkdir(parents=True)
        (models / name).symlink_to(tiny_models / name)
    for name, types in ((SIX, 6), (PROMAX, 8)):
        spec = released(union_controlnet(SDXL_UNET, types))
        save_file(build(spec, name, torch.float16), models / "controlnet" / name)
    running = RunningServer.start(ServerOptions(base, models, ("--workers", "2")))
    try:
        yield running
    finally:
        running.stop()


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def typed(net: str, type_name: str, class_type: str = "SetUnionControlNetType", **more: Any) -> dict[str, Any]:
    return node(class_type, control_net=[net, 0], type=type_name, **more)


def graph(chains: dict[str, list[str]], **nodes: Any) -> Graph:
    """Return a graph that samples with chains of ControlNets, given as the ids of their nodes."""
    made = {
        "ckpt": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "p": node("CLIPTextEncode", clip=["ckpt", 1], text="a house"),
        "n": node("CLIPTextEncode", clip=["ckpt", 1], text="bad"),
        "empty": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "image": node("EmptyImage", width=64, height=64, batch_size=1, color=0x804020),
        "plain": node("ControlNetLoader", control_net_name=PLAIN),
        "six": node("ControlNetLoader", control_net_name=SIX),
        "promax": node("ControlNetLoader", control_net_name=PROMAX),
        **nodes,
    }
    for name, nets in chains.items():
        sides = {"positive": ["p", 0], "negative": ["n", 0]}
        for at, net in enumerate(nets):
            made[f"{name} {at}"] = node(
                "ControlNetApplyAdvanced", **sides, control_net=[net, 0], image=["image", 0], strength=0.8,
                start_percent=0.0, end_percent=1.0,
            )  # fmt: skip
            sides = {"positive": [f"{name} {at}", 0], "negative": [f"{name} {at}", 1]}
        made[f"{name} k"] = node(
            "KSampler", **sides, model=["ckpt", 0], latent_image=["empty", 0], seed=3, steps=2, cfg=5.0,
            sampler_name="euler", scheduler="normal", denoise=1.0,
        )  # fmt: skip
        made[f"{name} s"] = node("SaveLatent", samples=[f"{name} k", 0], filename_prefix="x")
    return made


async def latents(server: RunningServer, chains: dict[str, list[str]], **nodes: Any) -> dict[str, torch.Tensor]:
    """Return the latent of every chain."""
    async with Client(server.url) as client:
        result = await client.run(graph(chains, **nodes))
        assert result.outcome == "execution_success", result.messages[-2:]
        outputs = result.history["outputs"]
        files = {name: await client.image(outputs[f"{name} s"]["latents"][0]) for name in chains}
    return {name: load(file)["latent_tensor"] for name, file in files.items()}


async def test_type_of_a_union_changes_the_picture_and_that_of_another_net_does_not(
    served: RunningServer,
) -> None:
    found = await latents(
        served,
        {
            "none": [],
            "untold": ["promax"],
            "auto": ["auto"],
            "depth": ["depth"],
            "tile": ["tile"],
            "back": ["back"],
            "both": ["depth", "tile"],
            "other file": ["other file"],
            "plain": ["plain"],
            "plain told": ["plain told"],
        },
        **{
            "auto": typed("promax", "auto"),
            "depth": typed("promax", "depth"),
            "tile": typed("promax", "tile"),
            "back": typed("depth", "auto"),
            "other file": typed("six", "depth"),
            "plain told": typed("plain", "depth"),
        },
    )
    for same in (("untold", "auto"), ("untold", "back"), ("plain", "plain told")):
        assert torch.equal(found[same[0]], found[same[1]]), same
    different = ["none", "auto", "depth", "tile", "both", "other file", "plain"]
    spread = float(found["none"].std())
    alike = [
        (one, other)
        for one in different
        for other in different
        if one < other and float((found[one] - found[other]).abs().max()) < 1e-3 * spread
    ]
    assert alike == []


async def test_pack_that_says_the_type_gives_the_bits_of_the_node(served: RunningServer) -> None:
    ways = {way: typed("promax", "normal", "ModelsUnionType", way=way) for way in ("argument", "node")}
    chains = {"ours": ["ours"], "argument": ["argument"], "node": ["node"], "untold": ["promax"]}
    found = await latents(served, chains, ours=typed("promax", "normal"), **ways)
    assert torch.equal(found["ours"], found["argument"])
    assert torch.equal(found["ours"], found["node"])
    assert not torch.equal(found["ours"], found["untold"])


async def test_type_that_a_file_does_not_have_ends_the_prompt_with_those_that_it_has(
    served: RunningServer,
) -> None:
    async with Client(served.url) as client:
        result = await client.run(graph({"tile": ["tile"]}, tile=typed("six", "tile")))
    assert result.outcome == "execution_error"
    data = next(data for kind, data in result.messages if kind == "execution_error")
    assert data["node_type"] == "KSampler"
    assert "union.safetensors: this union ControlNet has no type 'tile', but 6" in data["exception_message"]
