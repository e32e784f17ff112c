"""Variants of SD 1.5 and SDXL that no case was recorded of, on a real server.

A refiner after its base model, a model that edits pictures, and inpainting with SDXL. Unit tests compare their
networks with diffusers' own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.torch import load_file, save_file

from tests.support.client import Client, RunResult
from tests.support.make_tiny_models import CLIP_G, Spec, build, clip_open, unet, vae_kl
from tests.support.parity import INPUTS
from tests.support.server import RunningServer

Graph = dict[str, Any]

WIDTH = CLIP_G["d"]
REFINER_UNET: dict[str, Any] = {
    "mc": 32,
    "mults": (1, 2, 4, 4),
    "nres": 2,
    "depths": (0, 2, 2, 0),
    "mid": 2,
    "ctx": WIDTH,
    "adm": WIDTH + 5 * 256,
    "linear": True,
}
TEXTS = ("a red bird on a branch", "blurry")
PICTURES = ("golden_96x64.png", "golden_mask_96x64.png")


def variants(tiny_models: Path, folder: Path) -> Path:
    """Write a refiner, an SD 1.5 model that edits, and an SDXL model that paints, beside the tiny ones."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("sd15", "sdxl"):
        (checkpoints / f"{name}.safetensors").symlink_to(
            tiny_models / "checkpoints" / f"{name}_tiny.safetensors"
        )
    refiner = Spec().put("model.diffusion_model.", unet(**REFINER_UNET))
    refiner.put("conditioner.embedders.0.model.", clip_open(**CLIP_G)).put("first_stage_model.", vae_kl(4))
    save_file(build(refiner, "refiner", torch.float16), checkpoints / "refiner.safetensors")
    for name, base, channels in (("edit", "sd15", 4), ("paint", "sdxl", 5)):
        tensors = load_file(checkpoints / f"{base}.safetensors")
        first = tensors["model.diffusion_model.input_blocks.0.0.weight"]
        extra = torch.full((first.shape[0], channels, 3, 3), 0.05, dtype=first.dtype)
        tensors["model.diffusion_model.input_blocks.0.0.weight"] = torch.cat((first, extra), 1)
        save_file(tensors, checkpoints / f"{name}.safetensors")
    return folder


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def texts(model: str, **options: Any) -> Graph:
    """Return a checkpoint `m{model}` and its prompts; options: of a refiner's, the scores by side."""
    graph = {f"m{model}": node("CheckpointLoaderSimple", ckpt_name=f"{model}.safetensors")}
    for side, text in zip(("p", "n"), TEXTS, strict=True):
        given: dict[str, Any] = {"clip": [f"m{model}", 1], "text": text}
        if options:
            given |= {"ascore": options[side], "width": 96, "height": 64}
        kind = "CLIPTextEncodeSDXLRefiner" if options else "CLIPTextEncode"
        graph[f"{side}{model}"] = node(kind, **given)
    return graph


def walk(model: str, latent: str, *, begin: int, end: int, positive: list[Any] | None = None) -> dict[str, Any]:
    return node(
        "KSamplerAdvanced",
        model=[f"m{model}", 0],
        positive=positive or [f"p{model}", 0],
        negative=[f"n{model}", 0] if positive is None else [positive[0], 1],
        latent_image=[latent, 0] if positive is None else [positive[0], 2],
        add_noise="enable" if begin == 0 else "disable",
        return_with_leftover_noise="enable" if end < 5 else "disable",
        start_at_step=begin,
        end_at_step=end,
        noise_seed=7,
        steps=5,
        cfg=5.0,
        sampler_name="euler",
        scheduler="normal",
    )


def refined(by: str, **scores: float) -> Graph:
    """Return a graph in which a model walks the last two steps after three of the base model."""
    graph = texts("sdxl") | texts(by, **scores)
    graph["4"] = node("EmptyLatentImage", width=96, height=64, batch_size=1)
    graph["5"] = walk("sdxl", "4", begin=0, end=3)
    graph["6"] = walk(by, "5", begin=3, end=10000)
    graph["7"] = node("SaveLatent", samples=["6", 0], filename_prefix="refined")
    graph["8"] = node("VAEDecode", samples=["6", 0], vae=[f"m{by}", 2])
    return graph | {"9": node("SaveImage", images=["8", 0], filename_prefix="refined")}


def edited(picture: str) -> Graph:
    graph = texts("edit") | {"4": node("LoadImage", image=picture)}
    seen = {"positive": ["pedit", 0], "negative": ["nedit", 0], "vae": ["medit", 2], "pixels": ["4", 0]}
    graph["5"] = node("InstructPixToPixConditioning", **seen)
    graph["6"] = walk("edit", "", begin=0, end=10000, positive=["5", 0])
    return graph | {"7": node("SaveLatent", samples=["6", 0], filename_prefix="edited")}


def painted(channel: str) -> Graph:
    graph = texts("paint") | {"4": node("LoadImage", image=PICTURES[0])}
    graph["3"] = node("LoadImageMask", image=PICTURES[1], channel=channel)
    seen = {"positive": ["ppaint", 0], "negative": ["npaint", 0], "vae": ["mpaint", 2], "pixels": ["4", 0]}
    graph["5"] = node("InpaintModelConditioning", mask=["3", 0], noise_mask=False, **seen)
    graph["6"] = walk("paint", "", begin=0, end=10000, positive=["5", 0])
    return graph | {"7": node("SaveLatent", samples=["6", 0], filename_prefix="painted")}


async def latent(client: Client, graph: Graph, **fields: Any) -> tuple[NDArray[np.float32], RunResult]:
    run = await client.run(graph, **fields)
    assert run.outcome == "execution_success", run.messages[-3:]
    (entry,) = run.history["outputs"]["7"]["latents"]
    return load(await client.image(entry))["latent_tensor"], run


async def test_variants_of_known_families_run_and_see_what_they_are_given(
    start_server: Callable[..., RunningServer], tiny_models: Path, tmp_path: Path
) -> None:
    server = start_server(models=variants(tiny_models, tmp_path / "models"))
    for name in PICTURES:
        shutil.copy(INPUTS / name, server.folder("input"))
    async with Client(server.url) as client:
        plain, run = await latent(client, refined("refiner"), extra_data={"preview_method": "latent2rgb"})
        scored, _ = await latent(client, refined("refiner", p=6.0, n=2.5))
        others = [
            (await latent(client, graph))[0]
            for graph in (refined("refiner", p=1.0, n=2.5), refined("refiner", p=6.0, n=6.0), refined("sdxl"))
        ]
        pairs = [
            [(await latent(client, graph))[0] for graph in graphs]
            for graphs in ([edited(name) for name in PICTURES], [painted("red"), painted("alpha")])
        ]
    assert np.array_equal(plain, scored)
    assert run.previews
    assert len(run.images()) == 1
    for one, other in ((plain, other) for other in others):
        assert np.abs(one - other).max() > 1e-3 * one.std()
    for one, other in pairs:
        assert one.shape == (1, 4, 8, 12)
        assert np.isfinite(one).all()
        assert np.abs(one - other).max() > 1e-2 * one.std()
