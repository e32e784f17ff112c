"""Models that nodes save, on a real server: what is in the files, and that they give what was saved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.support.client import Client
from tests.support.server import RunningServer

Graph = dict[str, dict[str, Any]]

FOLDERS = ("checkpoints", "clip", "diffusion_models", "loras", "vae")


@pytest.fixture(autouse=True)
def _no_saved_models(server: RunningServer) -> Iterator[None]:
    """Remove what a test has saved where loaders look."""
    yield
    for folder in FOLDERS:
        shutil.rmtree(server.folder("output") / folder, ignore_errors=True)


def node(name: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": name, "inputs": inputs}


def checkpoint(name: str) -> Graph:
    """Return a graph whose outputs `model`, `clip` and `vae` (see `drawing`) are those of a checkpoint."""
    return {"ckpt": node("CheckpointLoaderSimple", ckpt_name=name)}


def drawing(model: list[Any], clip: list[Any], vae: list[Any]) -> Graph:
    """Return nodes that draw a picture with a model."""
    return {
        "text": node("CLIPTextEncode", clip=clip, text="a red cube on a table"),
        "latent": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "sample": node(
            "KSampler",
            model=model,
            positive=["text", 0],
            negative=["text", 0],
            latent_image=["latent", 0],
            seed=7,
            steps=2,
            cfg=3.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "decode": node("VAEDecode", samples=["sample", 0], vae=vae),
        "image": node("SaveImage", images=["decode", 0], filename_prefix="drawn/p"),
    }


async def run(server: RunningServer, graph: Graph) -> bytes:
    """Run a graph; returns the pixels of its picture, if it has one."""
    async with Client(server.url) as client:
        done = await client.run(graph)
    assert done.outcome == "execution_success", done.messages[-3:]
    for item in done.images():
        with Image.open(server.folder("output") / item["subfolder"] / item["filename"]) as image:
            return image.tobytes()
    return b""


async def drawn_by_file(server: RunningServer, name: str) -> bytes:
    """Return the pixels of the picture that a checkpoint draws."""
    return await run(server, checkpoint(name) | drawing(["ckpt", 0], ["ckpt", 1], ["ckpt", 2]))


async def test_checkpoint_with_a_lora_draws_the_same_picture(server: RunningServer, tiny_models: Path) -> None:
    lora = {"lora_name": "sd15_style_tiny.safetensors", "strength_model": 0.8, "strength_clip": 0.6}
    graph = checkpoint("sd15_tiny.safetensors") | {
        "lora": node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], **lora),
        "save": node(
            "CheckpointSave",
            model=["lora", 0],
            clip=["lora", 1],
            vae=["ckpt", 2],
            filename_prefix="checkpoints/styled",
        ),
    }
    wanted = await run(server, graph | drawing(["lora", 0], ["lora", 1], ["ckpt", 2]))
    assert wanted != await drawn_by_file(server, "sd15_tiny.safetensors")
    assert await drawn_by_file(server, "styled_00001_.safetensors") == wanted

    saved = server.folder("output") / "checkpoints" / "styled_00001_.safetensors"
    original = load_file(tiny_models / "checkpoints" / "sd15_tiny.safetensors")
    tensors = load_file(saved)
    assert tensors.keys() == original.keys()
    same = {name for name, tensor in tensors.items() if torch.equal(tensor, original[name])}
    assert 0 < len(same) < len(tensors)
    assert all(tensors[name].dtype == original[name].dtype for name in same)
    with safe_open(saved, "pt") as file:
        assert set(file.metadata()) == {"modelspec.predict_key", "prompt"}
        assert json.loads(file.metadata()["prompt"])["save"]["class_type"] == "CheckpointSave"


async def test_merge_of_two_models_draws_the_same_picture(server: RunningServer, tiny_models: Path) -> None:
    lora = {"lora_name": "sdxl_style_tiny.safetensors", "strength_model": 1.0, "strength_clip": 1.0}
    graph = checkpoint("sdxl_tiny.safetensors") | {
        "lora": node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], **lora),
        "model": node("ModelMergeSimple", model1=["ckpt", 0], model2=["lora", 0], ratio=0.3),
        "clip": node("CLIPMergeSimple", clip1=["ckpt", 1], clip2=["lora", 1], ratio=0.3),
        "save": node(
            "CheckpointSave",
            model=["model", 0],
            clip=["clip", 0],
            vae=["ckpt", 2],
            filename_prefix="checkpoints/sub/mix",
        ),
        "net": node("ModelSave", model=["model", 0], filename_prefix="diffusion_models/net"),
        "texts": node("CLIPSave", clip=["clip", 0], filename_prefix="clip/text"),
        "vae": node("VAESave", vae=["ckpt", 2], filename_prefix="vae/vae"),
    }
    wanted = await run(server, graph | drawing(["model", 0], ["clip", 0], ["ckpt", 2]))
    assert await drawn_by_file(server, "sub/mix_00001_.safetensors") == wanted
    apart: Graph = {
        "unet": node("UNETLoader", unet_name="net_00001_.safetensors", weight_dtype="default"),
        "clip": node(
            "DualCLIPLoader",
            clip_name1="text_clip_l_00001_.safetensors",
            clip_name2="text_clip_g_00001_.safetensors",
            type="sdxl",
        ),
        "vae": node("VAELoader", vae_name="vae_00001_.safetensors"),
    }
    assert await run(server, apart | drawing(["unet", 0], ["clip", 0], ["vae", 0])) == wanted

    output = server.folder("output")
    original = load_file(tiny_models / "checkpoints" / "sdxl_tiny.safetensors")
    tensors = load_file(output / "checkpoints" / "sub" / "mix_00001_.safetensors")
    positions = "conditioner.embedders.0.transformer.text_model.embeddings.position_ids"
    assert tensors.keys() == original.keys() | {positions}
    assert tensors[positions].tolist() == [list(range(77))]
    assert all(tensors[name].shape == original[name].shape for name in original)
    fused = "conditioner.embedders.1.model.transformer.resblocks.0.attn.in_proj_weight"
    assert not torch.equal(tensors[fused], original[fused])
    torch.testing.assert_close(tensors[fused].float(), original[fused].float(), rtol=0, atol=0.2)
    text = load_file(output / "clip" / "text_clip_g_00001_.safetensors")
    assert text["text_projection.weight"].shape == (192, 192)
    assert all(name.startswith(("text_model.", "text_projection.", "logit_scale")) for name in text)
    with safe_open(output / "checkpoints" / "sub" / "mix_00001_.safetensors", "pt") as file:
        assert file.metadata()["modelspec.architecture"] == "stable-diffusion-xl-v1-base"
        assert file.metadata()["modelspec.title"] == "mix 1"


async def test_file_says_what_its_network_predicts(server: RunningServer) -> None:
    """First a patch is saved as the marks of a continuous velocity, then marks are read and written again."""

    def patched(name: str, patch: dict[str, Any], prefix: str) -> Graph:
        patch["inputs"]["model"] = ["ckpt", 0]
        parts = {"clip": ["ckpt", 1], "vae": ["ckpt", 2], "filename_prefix": f"checkpoints/{prefix}"}
        saving = {"patch": patch, "save": node("CheckpointSave", model=["patch", 0], **parts)}
        return checkpoint(name) | saving | drawing(["patch", 0], ["ckpt", 1], ["ckpt", 2])

    levels = {"sigma_max": 90.0, "sigma_min": 0.01}
    edm = node("ModelSamplingContinuousEDM", sampling="v_prediction", **levels)
    wanted = await run(server, patched("sdxl_tiny.safetensors", edm, "edm"))
    assert await drawn_by_file(server, "edm_00001_.safetensors") == wanted

    folder = server.folder("output") / "checkpoints"
    tensors = load_file(folder / "edm_00001_.safetensors")
    assert float(tensors.pop("edm_vpred.sigma_max")) == pytest.approx(90.0)
    assert float(tensors.pop("edm_vpred.sigma_min")) == pytest.approx(0.01)
    assert "v_pred" not in tensors
    marks = {"v_pred": torch.zeros(0), "ztsnr": torch.zeros(0)}
    save_file(tensors | marks, folder / "v.safetensors")
    discrete = node("ModelSamplingDiscrete", sampling="v_prediction", zsnr=True)
    wanted = await run(server, patched("sdxl_tiny.safetensors", discrete, "eps"))
    assert await drawn_by_file(server, "v.safetensors") == wanted
    again = node("RescaleCFG", multiplier=0.0)
    assert await run(server, patched("v.safetensors", again, "again")) == wanted
    assert marks.keys() <= load_file(folder / "again_00001_.safetensors").keys()
    assert await drawn_by_file(server, "again_00001_.safetensors") == wanted
    assert not marks.keys() & load_file(folder / "eps_00001_.safetensors").keys(), "trained for noise"


def distance(one: bytes, other: bytes) -> float:
    """Return the mean difference of pixels."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


async def test_lora_that_is_extracted_draws_what_its_difference_is_of(server: RunningServer) -> None:
    lora = {"lora_name": "sd15_style_tiny.safetensors", "strength_model": 1.0, "strength_clip": 1.0}
    graph = checkpoint("sd15_tiny.safetensors") | {
        "lora": node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], **lora),
        "model": node("ModelMergeSubtract", model1=["lora", 0], model2=["ckpt", 0], multiplier=1.0),
        "clip": node("CLIPMergeSubtract", clip1=["lora", 1], clip2=["ckpt", 1], multiplier=1.0),
    }
    taken = {"model_diff": ["model", 0], "text_encoder_diff": ["clip", 0], "bias_diff": True, "rank": 4}
    for kind in ("standard", "full_diff"):
        graph[kind] = node("LoraSave", filename_prefix=f"loras/{kind}", lora_type=kind, **taken)
    wanted = await run(server, graph | drawing(["lora", 0], ["lora", 1], ["ckpt", 2]))
    plain = await drawn_by_file(server, "sd15_tiny.safetensors")
    away = {}
    for kind in ("standard", "full_diff"):
        again = {**lora, "lora_name": f"{kind}_00001_.safetensors"}
        graph = checkpoint("sd15_tiny.safetensors") | {
            "lora": node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], **again)
        }
        drawn = await run(server, graph | drawing(["lora", 0], ["lora", 1], ["ckpt", 2]))
        away[kind] = distance(drawn, wanted) / distance(plain, wanted)
    assert away["full_diff"] < 0.02
    assert away["standard"] < 0.2

    tensors = load_file(server.folder("output") / "loras" / "standard_00001_.safetensors")
    layer = "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q"
    assert tensors[f"{layer}.lora_up.weight"].shape[1] == tensors[f"{layer}.lora_down.weight"].shape[0] == 4
    text = "text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1"
    assert f"{text}.lora_up.weight" in tensors
    assert f"{text}.diff_b" in tensors
    with safe_open(server.folder("output") / "loras" / "full_diff_00001_.safetensors", "pt") as file:
        assert not file.metadata()
        assert not [name for name in file.keys() if "lora_" in name]  # noqa: SIM118
    assert "names are not known" not in server.log()


async def test_text_encoder_of_another_family_is_refused(server: RunningServer) -> None:
    graph: Graph = {
        "one": node("CheckpointLoaderSimple", ckpt_name="sd15_tiny.safetensors"),
        "two": node("CheckpointLoaderSimple", ckpt_name="sdxl_tiny.safetensors"),
        "save": node(
            "CheckpointSave",
            model=["one", 0],
            clip=["two", 1],
            vae=["one", 2],
            filename_prefix="checkpoints/odd",
        ),
    }
    async with Client(server.url) as client:
        done = await client.run(graph)
    assert done.outcome == "execution_error"
    assert "holds CLIP-L, this text encoder is CLIP-L and CLIP-G" in str(done.messages)
    assert not list((server.folder("output") / "checkpoints").glob("*"))
