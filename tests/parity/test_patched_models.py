"""Patches without a recorded case on the real server: each changes the latent, and they go together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load

from comfyserverless.core.values import FileRef, ModelRef
from comfyserverless.models.pool import ModelPool, PoolOptions
from tests.support.client import Client
from tests.support.parity import INPUTS, workflow_of
from tests.support.server import RunningServer

Graph = dict[str, Any]

PATCHES: dict[str, dict[str, Any]] = {
    "SelfAttentionGuidance": {"scale": 1.0, "blur_sigma": 2.0},
    "HyperTile": {"tile_size": 32, "swap_size": 2, "max_depth": 1, "scale_depth": False},
    "TomePatchModel": {"ratio": 0.5},
    "TCFG": {},
    "FreSca": {"scale_low": 1.0, "scale_high": 2.0, "freq_cutoff": 1},
    "RenormCFG": {"cfg_trunc": 100.0, "renorm_cfg": 0.5},
    "Epsilon Scaling": {"scaling_factor": 1.1},
    "VideoLinearCFGGuidance": {"min_cfg": 1.0},
    "UNetSelfAttentionMultiply": {"q": 2.0, "k": 1.0, "v": 1.0, "out": 0.5},
    "ModelSamplingDiscrete": {"sampling": "lcm", "zsnr": False},
    "ModelSamplingContinuousV": {"sampling": "v_prediction", "sigma_max": 500.0, "sigma_min": 0.03},
}


def sampled(patches: list[tuple[str, dict[str, Any]]], sampler: Graph | None = None) -> Graph:
    """Return the recorded graph with patches one after the other, three steps and its latent saved."""
    graph = {key: node for key, node in workflow_of("patch_pag").items() if key in "123567"}
    model: list[Any] = ["1", 0]
    for number, (name, settings) in enumerate(patches):
        graph[f"p{number}"] = {"class_type": name, "inputs": {"model": model, **settings}}
        model = [f"p{number}", 0]
    graph["6"]["inputs"] |= {"model": model, "steps": 3, **(sampler or {})}
    return graph


async def latent(client: Client, graph: Graph) -> NDArray[np.float32]:
    run = await client.run(graph)
    assert run.outcome == "execution_success", run.messages[-3:]
    found: NDArray[np.float32] = load(await client.image(run.history["outputs"]["7"]["latents"][0]))[
        "latent_tensor"
    ]
    assert np.isfinite(found).all()
    return found


async def test_each_patch_changes_the_latent(server: RunningServer) -> None:
    async with Client(server.url) as client:
        plain = await latent(client, sampled([]))
        differences = {
            name: float(np.abs(await latent(client, sampled([(name, settings)])) - plain).max() / plain.std())
            for name, settings in PATCHES.items()
        }
    assert {name for name, difference in differences.items() if difference < 0.01} == set(), differences


async def test_patches_act_together_and_twice_alike(server: RunningServer) -> None:
    chain = [
        ("FreeU_V2", {"b1": 1.3, "b2": 1.4, "s1": 0.9, "s2": 0.2}),
        ("PerturbedAttentionGuidance", {"scale": 2.0}),
        ("RescaleCFG", {"multiplier": 0.7}),
        ("APG", {"eta": 1.0, "norm_threshold": 5.0, "momentum": 0.5}),
    ]
    dynamic = {"sampler_name": "dpmpp_2m_sde"}
    async with Client(server.url) as client:
        together = await latent(client, sampled(chain, dynamic))
        fewer = await latent(client, sampled(chain[1:], dynamic))
        other_seed = await latent(client, sampled(chain, {**dynamic, "seed": 1}))
        again = await latent(client, sampled(chain, {**dynamic, "cfg": 7.0 + 1e-12}))
    assert not np.array_equal(together, fewer)
    assert not np.array_equal(together, other_seed)
    np.testing.assert_allclose(together, again, rtol=1e-4, atol=1e-4)


async def test_a_patch_evaluates_with_what_a_control_net_adds(server: RunningServer) -> None:
    for path in INPUTS.iterdir():
        shutil.copy(path, server.folder("input") / path.name)
    graph = workflow_of("cn_sd15_full")
    sampler = next(key for key, node in graph.items() if node["class_type"] == "KSampler")
    model = graph[sampler]["inputs"]["model"]
    graph["p"] = {"class_type": "PerturbedAttentionGuidance", "inputs": {"model": model, "scale": 0.0}}
    graph[sampler]["inputs"] |= {"model": ["p", 0], "steps": 2}
    async with Client(server.url) as client:
        results = []
        for scale in (0.0, 3.0):
            graph["p"]["inputs"]["scale"] = scale
            run = await client.run(graph)
            assert run.outcome == "execution_success", run.messages[-3:]
            entry = next(out["latents"][0] for out in run.history["outputs"].values() if out.get("latents"))
            results.append(load(await client.image(entry))["latent_tensor"])
    difference = np.abs(results[1] - results[0]).max() / results[0].std()
    assert 0.001 < difference < 5


async def test_what_only_transformers_have_is_refused_with_the_reason(server: RunningServer) -> None:
    layers = {"double_layers": "7", "single_layers": "7", "start_percent": 0.0, "end_percent": 1.0}
    async with Client(server.url) as client:
        run = await client.run(sampled([("SkipLayerGuidanceDiTSimple", layers)]))
    assert run.outcome == "execution_error"
    assert "this sd15 model is a U-Net" in str(run.messages[-3:])


async def test_text_encoders_are_multiplied_and_defaults_fill_what_an_area_leaves(
    server: RunningServer,
) -> None:
    factors = {"q": 1.0, "k": 1.0, "v": 1.0, "out": 1.0}
    graphs = {}
    for name, out in (("ones", 1.0), ("halved", 0.5)):
        graphs[name] = sampled([])
        graphs[name]["c"] = {
            "class_type": "CLIPAttentionMultiply",
            "inputs": {"clip": ["1", 1], **factors, "out": out},
        }
        graphs[name]["2"]["inputs"]["clip"] = ["c", 0]
    area = {"conditioning": ["2", 0], "width": 64, "height": 64, "x": 0, "y": 0, "strength": 1.0}
    graphs["area"] = sampled([])
    graphs["area"]["a"] = {"class_type": "ConditioningSetArea", "inputs": area}
    graphs["area"]["d"] = {
        "class_type": "ConditioningSetDefaultCombine",
        "inputs": {"cond": ["a", 0], "cond_DEFAULT": ["3", 0]},
    }
    graphs["area"]["6"]["inputs"]["positive"] = ["d", 0]
    async with Client(server.url) as client:
        plain = await latent(client, sampled([]))
        found = {name: await latent(client, graph) for name, graph in graphs.items()}
    assert np.array_equal(found["ones"], plain)
    for name in ("halved", "area"):
        assert np.abs(found[name] - plain).max() > 0.01 * plain.std()


def test_patched_network_has_the_same_bits_where_weights_come_and_go(tiny_models: Path) -> None:
    path = tiny_models / "checkpoints" / "sd15_tiny.safetensors"
    ref = ModelRef(FileRef(str(path), path.stat().st_size, path.stat().st_mtime_ns))
    generator = torch.Generator().manual_seed(0)
    whole = ModelPool()
    network = whole.diffusion(ref)
    x = torch.randn(2, 4, 8, 12, generator=generator)
    context = torch.randn(2, 77, network.facts.context_width, generator=generator)
    plain = network.predict(x, torch.tensor([500.0, 500.0]), context)
    third = ModelPool(options=PoolOptions(device_bytes=whole.weights_bytes // 3))
    patched = third.diffusion(ref).predict(x, torch.tensor([500.0, 500.0]), context, options={})
    assert torch.equal(patched, plain)
    assert third.weights_bytes <= whole.weights_bytes // 3
