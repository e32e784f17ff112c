"""Let a pack work with MODEL, CLIP and VAE: what it samples has the bits of the built-in nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from tests.support.client import Client, RunResult
from tests.support.server import RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "model_nodes"
CHECKPOINT, XL, LORA = "sd15_tiny.safetensors", "sdxl_tiny.safetensors", "sd15_style_tiny.safetensors"

Graph = dict[str, Any]


@pytest.fixture(scope="module")
def packs(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with the pack."""
    base = tmp_path_factory.mktemp("models")
    shutil.copytree(PACK, base / "custom_nodes" / PACK.name, ignore=shutil.ignore_patterns("__pycache__"))
    running = RunningServer.start(ServerOptions(base, models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    """Return a node."""
    return {"class_type": class_type, "inputs": inputs}


def base(checkpoint: str = CHECKPOINT, **nodes: Any) -> Graph:
    """Return a graph with a model, both conditionings and an empty latent, and further nodes."""
    return {
        "ckpt": node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        "yes": node("CLIPTextEncode", clip=["ckpt", 1], text="a (red:1.3) house"),
        "no": node("CLIPTextEncode", clip=["ckpt", 1], text="bad"),
        "empty": node("EmptyLatentImage", width=64, height=96, batch_size=2),
        **nodes,
    }


_SIDES = {"positive": ["yes", 0], "negative": ["no", 0]}


def ksampler(model: Any = ("ckpt", 0), latent: Any = ("empty", 0), **changes: Any) -> dict[str, Any]:
    """Return a built-in KSampler."""
    settings = {
        "seed": 5,
        "steps": 3,
        "cfg": 7.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1.0,
    }
    return node("KSampler", model=list(model), latent_image=list(latent), **_SIDES, **{**settings, **changes})


def sampled(class_type: str, model: Any = ("ckpt", 0), latent: Any = ("empty", 0), **changes: Any) -> Any:
    """Return a sampler of the pack with the same settings."""
    settings = {"seed": 5, "steps": 3, "cfg": 7.0, "sampler": "euler", "scheduler": "normal", "denoise": 1.0}
    return node(class_type, model=list(model), latent=list(latent), **_SIDES, **{**settings, **changes})


async def latents(server: RunningServer, graph: Graph, *sources: str) -> list[torch.Tensor]:
    """Run a graph and return the latents of nodes, slot 0 (or as `node:slot` says)."""
    graph = dict(graph)
    for name in sources:
        source, _, slot = name.partition(":")
        graph[f"save {name}"] = node("SaveLatent", samples=[source, int(slot or 0)], filename_prefix="x")
    async with Client(server.url) as client:
        result = await client.run(graph)
        assert result.outcome == "execution_success", [
            data.get("exception_message") for _, data in result.messages[-2:]
        ]
        outputs = result.history["outputs"]
        files = [await client.image(outputs[f"save {name}"]["latents"][0]) for name in sources]
    return [load(file)["latent_tensor"] for file in files]


def error_of(result: RunResult) -> dict[str, Any]:
    """Return the data of the message that ended a prompt that failed."""
    assert result.outcome == "execution_error", result.messages[-2:]
    return next(data for kind, data in reversed(result.messages) if kind == "execution_error")


@pytest.mark.parametrize("checkpoint", [CHECKPOINT, XL])
async def test_common_ksampler_gives_the_bits_of_the_ksampler_node(
    packs: RunningServer, checkpoint: str
) -> None:
    graph = base(
        checkpoint,
        a=ksampler(),
        b=sampled("ModelsPlain"),
        c=ksampler(latent=("a", 0), denoise=0.4, sampler_name="dpmpp_2m_sde", scheduler="karras", seed=9),
        d=sampled(
            "ModelsPlain", latent=("b", 0), denoise=0.4, sampler="dpmpp_2m_sde", scheduler="karras", seed=9
        ),
        e=ksampler(sampler_name="dpm_2", scheduler="beta", cfg=1.0),
        f=sampled("ModelsPlain", sampler="dpm_2", scheduler="beta", cfg=1.0),
    )
    a, b, c, d, e, f = await latents(packs, graph, *"abcdef")
    assert torch.equal(a, b)
    assert torch.equal(c, d)
    assert torch.equal(e, f)
    assert not torch.equal(a, c)


@pytest.mark.parametrize("sampler", ["euler", "dpmpp_2m_sde", "heun", "euler_ancestral_cfg_pp"])
async def test_walk_that_the_pack_drives_step_by_step_gives_the_same_bits(
    packs: RunningServer, sampler: str
) -> None:
    graph = base(a=ksampler(sampler_name=sampler), b=sampled("ModelsStepwise", sampler=sampler))
    a, b = await latents(packs, graph, "a", "b")
    assert torch.equal(a, b)


async def test_driven_walk_keeps_what_a_mask_keeps(packs: RunningServer) -> None:
    graph = base(
        mask=node("SolidMask", value=1.0, width=32, height=96),
        wide=node("MaskComposite", destination=["dark", 0], source=["mask", 0], x=0, y=0, operation="add"),
        dark=node("SolidMask", value=0.0, width=64, height=96),
        start=ksampler(seed=1),
        masked=node("SetLatentNoiseMask", samples=["start", 0], mask=["wide", 0]),
        a=ksampler(latent=("masked", 0), denoise=0.6),
        b=sampled("ModelsPlain", latent=("masked", 0), denoise=0.6),
    )
    start, a, b = await latents(packs, graph, "start", "a", "b")
    assert torch.equal(a, b)
    assert torch.equal(a[..., 4:], start[..., 4:])
    assert not torch.equal(a[..., :4], start[..., :4])


async def test_functions_of_a_pack_travel_with_the_model_and_are_called(packs: RunningServer) -> None:
    graph = base(
        half=ksampler(cfg=3.5),
        a=sampled("ModelsHalvedGuidance"),
        patch=node("ModelsPatchOnly", model=["ckpt", 0]),
        b=ksampler(model=("patch", 0)),
        c=sampled("ModelsStepwise", model=("patch", 0)),
        plain=ksampler(),
    )
    half, a, b, c, plain = await latents(packs, graph, "half", "a", "b", "c", "plain")
    torch.testing.assert_close(a, half, rtol=0, atol=1e-3)
    assert torch.equal(a, b)
    torch.testing.assert_close(c, b, rtol=0, atol=1e-5)
    assert not torch.allclose(a, plain, atol=1e-2)


async def test_functions_that_evaluate_the_model_again_do_so_wherever_the_walk_is_driven(
    packs: RunningServer,
) -> None:
    graph = base(plain=ksampler(), a=sampled("ModelsPerturbed"), b=sampled("ModelsPerturbedStepwise"))
    plain, a, b = await latents(packs, graph, "plain", "a", "b")
    torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-4)
    assert not torch.allclose(a, plain, atol=1e-3)


async def test_replaced_attention_and_noise_process_change_what_is_sampled(packs: RunningServer) -> None:
    graph = base(
        plain=ksampler(), silent=sampled("ModelsZeroedAttention"), process=sampled("ModelsRescheduled")
    )
    plain, silent, process = await latents(packs, graph, "plain", "silent", "process")
    assert torch.isfinite(silent).all()
    assert torch.isfinite(process).all()
    assert not torch.allclose(plain, silent, atol=1e-4)
    assert not torch.allclose(plain, process, atol=1e-2)


async def test_what_cannot_travel_is_named(packs: RunningServer) -> None:
    graph = base(a=sampled("ModelsUnpicklable"))
    graph["save"] = node("SaveLatent", samples=["a", 0], filename_prefix="x")
    async with Client(packs.url) as client:
        error = error_of(await client.run(graph))
    assert "locked" in error["exception_message"]
    assert "sampler_post_cfg_function[0]" in error["exception_message"]
    assert "cannot travel to the workers" in error["exception_message"]


async def test_own_samplers_guiders_and_noise_work_in_the_nodes_of_custom_sampling(
    packs: RunningServer,
) -> None:
    custom = {
        "sigmas": node("BasicScheduler", model=["ckpt", 0], scheduler="normal", steps=3, denoise=1.0),
        "noise": node("RandomNoise", noise_seed=5),
        "turned": node("ModelsOwnNoise", seed=5),
        "euler": node("KSamplerSelect", sampler_name="euler"),
        "own": node("ModelsOwnSampler", push=1.0),
        "cfg": node("CFGGuider", model=["ckpt", 0], cfg=7.0, **_SIDES),
        "one": node("CFGGuider", model=["ckpt", 0], cfg=1.0, **_SIDES),
        "guider": node("ModelsOwnGuider", model=["ckpt", 0], **_SIDES),
    }

    def custom_sampler(noise: str, guider: str, sampler: str) -> dict[str, Any]:
        links = {"noise": [noise, 0], "guider": [guider, 0], "sampler": [sampler, 0]}
        return node("SamplerCustomAdvanced", **links, sigmas=["sigmas", 0], latent_image=["empty", 0])

    graph = base(
        **custom,
        a=custom_sampler("noise", "cfg", "euler"),
        b=custom_sampler("noise", "cfg", "own"),
        c=custom_sampler("turned", "cfg", "euler"),
        d=custom_sampler("noise", "guider", "euler"),
        e=custom_sampler("noise", "one", "euler"),
        f=node("SamplerCustom", model=["ckpt", 0], add_noise=True, noise_seed=5, cfg=7.0, **_SIDES,
               sampler=["own", 0], sigmas=["sigmas", 0], latent_image=["empty", 0]),
    )  # fmt: skip
    found = await latents(packs, graph, *"abcdef", "a:1", "b:1")
    a, b, c, d, e, f, a_denoised, b_denoised = found
    torch.testing.assert_close(b, a, rtol=0, atol=1e-4)
    assert torch.equal(c, a)
    torch.testing.assert_close(d, e, rtol=0, atol=1e-4)
    assert torch.equal(f, b)
    torch.testing.assert_close(b_denoised, a_denoised, rtol=0, atol=1e-4)


async def test_sampler_that_a_pack_has_added_is_one_of_the_ksamplers(packs: RunningServer) -> None:
    graph = base(a=ksampler(), b=ksampler(sampler_name="own_euler"))
    a, b = await latents(packs, graph, "a", "b")
    torch.testing.assert_close(b, a, rtol=0, atol=1e-4)
    async with Client(packs.url) as client:
        entries = await client.get("/object_info")
        assert entries["KSampler"] == (await client.get("/object_info/KSampler"))["KSampler"]
        result = await client.run({**base(a=ksampler(sampler_name="own_euler", steps=4)),
                                   "s": node("SaveLatent", samples=["a", 0], filename_prefix="x")})  # fmt: skip
    assert "own_euler" in entries["KSampler"]["input"]["required"]["sampler_name"][0]
    told = [data for kind, data in result.messages if kind == "progress" and data["node"] == "a"]
    assert [(data["value"], data["max"]) for data in told][-1] == (4, 4)


async def test_progress_of_a_walk_on_the_workers_is_that_of_the_pack_node(packs: RunningServer) -> None:
    graph = base(a=sampled("ModelsPlain", steps=5, seed=99))
    graph["s"] = node("SaveLatent", samples=["a", 0], filename_prefix="x")
    async with Client(packs.url) as client:
        result = await client.run(graph)
    told = [data for kind, data in result.messages if kind == "progress" and data["node"] == "a"]
    assert [data["value"] for data in told if data["max"] == 5][-5:] == [1, 2, 3, 4, 5]


async def test_detailer_of_library_nodes_gives_the_bits_of_a_graph(packs: RunningServer) -> None:
    graph = base(
        image=node("EmptyImage", width=64, height=64, batch_size=1, color=0x804020),
        lora=node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], lora_name=LORA, strength_model=0.8,
                  strength_clip=0.6),
        enc=node("VAEEncode", pixels=["image", 0], vae=["ckpt", 2]),
        p=node("CLIPTextEncode", clip=["lora", 1], text="a (red:1.3) house"),
        n=node("CLIPTextEncode", clip=["lora", 1], text=""),
        a=node("KSampler", model=["lora", 0], seed=7, steps=2, cfg=6.0, sampler_name="euler",
               scheduler="normal", positive=["p", 0], negative=["n", 0], latent_image=["enc", 0], denoise=0.5),
        b=node("ModelsDetailer", model=["ckpt", 0], clip=["ckpt", 1], vae=["ckpt", 2], image=["image", 0],
               lora=LORA),
        again=node("VAEEncode", pixels=["b", 0], vae=["ckpt", 2]),
        decoded=node("VAEDecode", samples=["a", 0], vae=["ckpt", 2]),
        once=node("VAEEncode", pixels=["decoded", 0], vae=["ckpt", 2]),
    )  # fmt: skip
    a, b, again, once = await latents(packs, graph, "a", "b:1", "again", "once")
    assert torch.equal(a, b)
    assert torch.equal(again, once)


@pytest.mark.parametrize("checkpoint", [CHECKPOINT, XL])
async def test_tokens_of_a_pack_are_encoded_as_they_are(packs: RunningServer, checkpoint: str) -> None:
    text = "a (red:1.3) house, embedding:tinystyle, " + "with many words " * 30
    graph = base(
        checkpoint,
        a=node("CLIPTextEncode", clip=["ckpt", 1], text=text),
        b=node("ModelsTokenEncoder", clip=["ckpt", 1], text=text, factor=1.0),
        c=node("ModelsTokenEncoder", clip=["ckpt", 1], text=text, factor=2.0),
    )
    graph |= {
        f"k{name}": {**ksampler(), "inputs": {**ksampler()["inputs"], "positive": [name, 0]}} for name in "abc"
    }
    a, b, c = await latents(packs, graph, "ka", "kb", "kc")
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


async def test_models_loaded_by_path_are_those_of_the_loaders(packs: RunningServer) -> None:
    graph = base(
        lora=node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], lora_name=LORA, strength_model=0.8,
                  strength_clip=0.6),
        same=node("ModelsFileLoader", checkpoint=CHECKPOINT, lora=LORA, changed=False),
        copied=node("ModelsFileLoader", checkpoint=CHECKPOINT, lora=LORA, changed=True),
        a=ksampler(model=("lora", 0)),
        b=ksampler(model=("same", 0)),
        c=ksampler(model=("copied", 0)),
        plain=ksampler(),
    )  # fmt: skip
    a, b, c, plain = await latents(packs, graph, "a", "b", "c", "plain")
    assert torch.equal(a, b)
    assert torch.equal(a, c)
    assert not torch.equal(a, plain)


async def test_pack_sees_what_comfyui_shows_of_models(packs: RunningServer) -> None:
    graph = base(show=node("ModelsDescribe", model=["ckpt", 0], clip=["ckpt", 1], vae=["ckpt", 2]))
    async with Client(packs.url) as client:
        result = await client.run(graph)
    assert result.outcome == "execution_success", [
        data.get("exception_message") for _, data in result.messages[-2:]
    ]
    expected = ["ModelPatcher", "True", "False", "4", "14.615", "['l']", "8", "True", "('LATENT',)", "True"]
    assert result.history["outputs"]["show"]["text"] == expected


async def test_subclass_of_the_saving_node_saves_with_the_graph(packs: RunningServer) -> None:
    graph: Graph = {
        "image": node("EmptyImage", width=8, height=8, batch_size=2, color=0xFF0000),
        "save": node("ModelsOwnSave", images=["image", 0], filename_prefix="mine/x"),
    }
    async with Client(packs.url) as client:
        result = await client.run(graph)
        assert result.outcome == "execution_success", [
            data.get("exception_message") for _, data in result.messages[-2:]
        ]
        items = result.history["outputs"]["save"]["images"]
        content = await client.image(items[1])
    assert items[0] == {"filename": "x_own_00001_.png", "subfolder": "mine", "type": "output"}
    assert b"ModelsOwnSave" in content


async def test_controls_of_conditionings_act_wherever_the_walk_is_driven(packs: RunningServer) -> None:
    graph = base(
        image=node("EmptyImage", width=64, height=96, batch_size=1, color=0x804020),
        net=node("ControlNetLoader", control_net_name="sd15_canny_tiny.safetensors"),
        both=node("ControlNetApplyAdvanced", **_SIDES, control_net=["net", 0], image=["image", 0], strength=0.9,
                  start_percent=0.0, end_percent=0.6),
        plain=ksampler(),
    )  # fmt: skip
    sides = {"positive": ["both", 0], "negative": ["both", 1]}
    for name, made in (("a", ksampler()), ("b", sampled("ModelsPlain")), ("c", sampled("ModelsStepwise"))):
        graph[name] = {**made, "inputs": {**made["inputs"], **sides}}
    a, b, c, plain = await latents(packs, graph, "a", "b", "c", "plain")
    assert torch.equal(a, b)
    assert torch.equal(a, c)
    assert not torch.equal(a, plain)


@pytest.mark.parametrize("way", ["whole", "entries"])
async def test_adapters_that_a_pack_puts_on_by_keys_are_those_of_the_file(
    packs: RunningServer, way: str
) -> None:
    graph = base(
        lora=node("LoraLoader", model=["ckpt", 0], clip=["ckpt", 1], lora_name=LORA, strength_model=0.8,
                  strength_clip=0.6),
        keys=node("ModelsLoraByKeys", model=["ckpt", 0], clip=["ckpt", 1], lora=LORA, way=way),
    )  # fmt: skip
    for name in ("lora", "keys"):
        graph[f"{name} p"] = node("CLIPTextEncode", clip=[name, 1], text="a house")
        made = ksampler(model=(name, 0))
        graph[f"{name} k"] = {**made, "inputs": {**made["inputs"], "positive": [f"{name} p", 0]}}
    graph["plain"] = ksampler()
    a, b, plain = await latents(packs, graph, "lora k", "keys k", "plain")
    assert torch.equal(a, b)
    assert not torch.equal(a, plain)


async def test_models_that_a_pack_mixes_weight_by_weight_are_those_of_the_node(packs: RunningServer) -> None:
    graph = base(
        keys=node("ModelsLoraByKeys", model=["ckpt", 0], clip=["ckpt", 1], lora=LORA, way="entries"),
        own=node("ModelsMergedByKeys", first=["ckpt", 0], second=["keys", 0], ratio=0.4),
        merged=node("ModelMergeSimple", model1=["ckpt", 0], model2=["keys", 0], ratio=0.4),
        a=ksampler(model=("own", 0)),
        b=ksampler(model=("merged", 0)),
        plain=ksampler(),
    )
    a, b, plain = await latents(packs, graph, "a", "b", "plain")
    assert (a - b).abs().max() < (plain - b).abs().max() / 10


async def test_differences_and_wrappers_of_a_pack_act(packs: RunningServer) -> None:
    graph = base(plain=ksampler(), half=sampled("ModelsDifferences"), wrapped=sampled("ModelsWrapped"))
    plain, half, wrapped = await latents(packs, graph, "plain", "half", "wrapped")
    assert torch.equal(plain, wrapped)
    assert torch.isfinite(half).all()
    assert not torch.allclose(plain, half, atol=1e-2)


async def test_patches_of_built_in_nodes_act_wherever_the_walk_is_driven(packs: RunningServer) -> None:
    graph = base(
        rescale=node("RescaleCFG", model=["ckpt", 0], multiplier=0.9),
        process=node("ModelSamplingDiscrete", model=["rescale", 0], sampling="v_prediction", zsnr=True),
        a=ksampler(model=("process", 0)),
        b=sampled("ModelsPlain", model=("process", 0)),
        c=sampled("ModelsStepwise", model=("process", 0)),
        plain=ksampler(),
    )
    a, b, c, plain = await latents(packs, graph, "a", "b", "c", "plain")
    assert torch.equal(a, b)
    torch.testing.assert_close(c, a, rtol=1e-5, atol=1e-4)
    assert not torch.allclose(a, plain, atol=1e-2)


async def test_upscalers_and_tiled_decoding_are_those_of_the_nodes(packs: RunningServer) -> None:
    graph = base(
        image=node("EmptyImage", width=16, height=16, batch_size=1, color=0x804020),
        upscaler=node("UpscaleModelLoader", model_name="esrgan_x2_tiny.safetensors"),
        start=ksampler(steps=1),
        own=node("ModelsEnlarged", upscaler=["upscaler", 0], image=["image", 0], vae=["ckpt", 2],
                 latent=["start", 0]),
        larger=node("ImageUpscaleWithModel", upscale_model=["upscaler", 0], image=["image", 0]),
        tiled=node("VAEDecodeTiled", samples=["start", 0], vae=["ckpt", 2], tile_size=64, overlap=16,
                   temporal_size=64, temporal_overlap=8),
    )  # fmt: skip
    pictures = {"a": ["own", 0], "b": ["larger", 0], "c": ["own", 1], "d": ["tiled", 0]}
    graph |= {name: node("VAEEncode", pixels=link, vae=["ckpt", 2]) for name, link in pictures.items()}
    graph["scale"] = node("PreviewAny", source=["own", 2])
    a, b, c, d = await latents(packs, graph, *"abcd")
    assert torch.equal(a, b)
    assert torch.equal(c, d)
    assert a.shape[-1] == 4
