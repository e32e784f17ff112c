"""Patches inside U-Nets by their laws, on a small network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, ModelRef, Patch
from comfyserverless.functions.patching.builtin.attention import _from_tiles, _matched, _to_tiles
from comfyserverless.functions.patching.builtin.perturbed import attend_and_see, gaussian_blur
from comfyserverless.functions.patching.builtin.spectrum import scale_low_frequencies
from comfyserverless.functions.patching.subject import subject_of
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.patching.attention import attend
from comfyserverless.models.patching.unet import run_patched
from comfyserverless.sampling.noise import stream_behind
from tests.unit.models.patching.test_unet import NETWORK, inputs, own

#: of a network whose finest level has 16 channels: FreeU's levels then have 32 and 64
FACTS = ModelFacts("sd15", 4, 4, 0.18215, "epsilon", context_width=16, model_channels=16)
SIGMAS = torch.tensor([5.0, 5.0])
PLAIN = own(NETWORK, inputs(16, 16))


def run(name: str, sigma: float = 5.0, memory: dict[str, Any] | None = None, **arguments: Any) -> Tensor:
    """Return what the network gives for a map of 16 x 16 cells with one patch."""
    model = ModelRef(FileRef("/m"), patches=(Patch(name, tuple(arguments.items())),))
    options = dict((subject_of(model, FACTS).options or {})["transformer_options"])
    options |= {"sigmas": torch.tensor([sigma, sigma]), "scratch": {}, "cond_or_uncond": [1, 0]}
    options["walk_memory"] = {} if memory is None else memory
    return run_patched(NETWORK, inputs(16, 16), options)


ONES = {"b1": 1.0, "b2": 1.0, "s1": 1.0, "s2": 1.0}
SHRINK = {
    "block_number": 2,
    "downscale_factor": 2.0,
    "start_percent": 0.0,
    "end_percent": 0.35,
    "downscale_after_skip": True,
    "downscale_method": "bicubic",
    "upscale_method": "bislerp",
}
TILES = {"tile_size": 64, "swap_size": 2, "max_depth": 0, "scale_depth": False}
FACTORS = {"q": 1.0, "k": 1.0, "v": 1.0, "out": 1.0}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("freeu", ONES),
        ("freeu_v2", ONES),
        ("downscale", {**SHRINK, "start_percent": 0.9, "end_percent": 1.0}),
        ("hypertile", {**TILES, "tile_size": 2048}),
        ("tome", {"ratio": 0.0}),
        ("multiply_attention", {"attention": "attn2", **FACTORS}),
    ],
)
def test_setting_that_does_nothing_gives_the_plain_network(name: str, arguments: dict[str, Any]) -> None:
    torch.testing.assert_close(run(name, **arguments), PLAIN, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("freeu", {**ONES, "b1": 1.2}),
        ("freeu", {**ONES, "s2": 0.2}),
        ("freeu_v2", {**ONES, "b2": 1.4}),
        ("downscale", {**SHRINK, "block_number": 1, "downscale_after_skip": False}),
        ("downscale", SHRINK),
        ("hypertile", TILES),
        ("hypertile", {**TILES, "swap_size": 3, "max_depth": 1, "scale_depth": True}),
        ("tome", {"ratio": 0.5}),
        ("multiply_attention", {"attention": "attn1", **FACTORS, "q": 0.1}),
        ("sag", {"scale": 0.5, "blur_sigma": 2.0}),
    ],
)
def test_patch_acts_and_gives_the_same_bits_again(name: str, arguments: dict[str, Any]) -> None:
    sigma = 14.0 if name == "downscale" else 5.0
    found = run(name, sigma, **arguments)
    assert torch.isfinite(found).all()
    assert torch.equal(found, run(name, sigma, **arguments))
    assert torch.allclose(found, PLAIN, rtol=1e-4, atol=1e-5) == (name == "sag")  # which only looks here


def test_shrinking_to_nothing_is_refused() -> None:
    with pytest.raises(PromptError, match="leaves nothing of a map"):
        run("downscale", 14.0, **{**SHRINK, "downscale_factor": 99.0})


def test_skip_layer_guidance_is_refused_for_a_u_net() -> None:
    with pytest.raises(PromptError, match="this sd15 model is a U-Net"):
        run("skip_layers")


def test_tiles_come_back_as_they_were() -> None:
    x = torch.randn(2, 4 * 6, 5)
    tiles = _to_tiles(x, 2, 3, 4, 6)
    assert tiles.shape == (12, 4, 5)
    assert torch.equal(tiles[0], x[0, [0, 1, 6, 7]])
    assert torch.equal(_from_tiles(tiles, 2, 3, 4, 6), x)


def test_merged_tokens_are_those_most_alike_and_get_the_result_of_their_target() -> None:
    x = torch.randn(1, 16, 8, generator=torch.Generator().manual_seed(0))
    merged, restore = _matched(x, (4, 4), 6, torch.Generator().manual_seed(0))
    assert merged.shape == (1, 10, 8)
    restored = restore(merged)
    kept = (restored == x).all(-1).sum()
    assert kept >= 6
    assert len(torch.unique(restored[0], dim=0)) == 10


def test_low_frequencies_are_those_around_the_mean() -> None:
    x = torch.randn(1, 2, 8, 8) + 3
    silent = scale_low_frequencies(x, 1, 0.0)
    torch.testing.assert_close(silent.mean(dim=(2, 3)), torch.zeros(1, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scale_low_frequencies(x, 1, 1.0), x)


def test_attention_is_seen_as_it_is_computed() -> None:
    query, key, value = (torch.randn(2, 6, 8) for _ in range(3))
    result, received = attend_and_see(query, key, value, heads=2)
    torch.testing.assert_close(result, attend(query, key, value, 2))
    torch.testing.assert_close(received.sum(1), torch.full((2,), 6.0))


def test_blur_keeps_what_is_flat_and_sigma_zero_keeps_all() -> None:
    flat, x = torch.full((1, 3, 8, 8), 2.0), torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(gaussian_blur(flat, 2.0), flat)
    assert torch.equal(gaussian_blur(x, 0.0), x)


def test_what_a_patch_draws_goes_on_in_the_memory() -> None:
    memory: dict[str, Any] = {"stream": {"state": stream_behind(torch.zeros(1, 4, 16, 16), 7)}}
    again = {"stream": dict(memory["stream"])}
    first = run("tome", memory=memory, ratio=0.5)
    second = run("tome", memory=memory, ratio=0.5)
    assert torch.equal(first, run("tome", memory=again, ratio=0.5))
    assert not torch.equal(first, second)
    generator = torch.Generator().manual_seed(7)
    torch.randn(1, 4, 16, 16, generator=generator)
    for _ in range(6):  # twice three attentions at the finest level
        torch.randint(4, (8, 8, 1), generator=generator)
    assert torch.equal(memory["stream"]["state"], generator.get_state())


def test_tiles_of_queries_see_a_run_of_the_cells_each() -> None:
    quarters = run("hypertile", tile_size=64, swap_size=1, max_depth=0, scale_depth=False)
    assert quarters.shape == PLAIN.shape
    assert not torch.allclose(quarters, PLAIN, rtol=1e-4, atol=1e-5)


def test_a_single_cell_is_its_mean_which_counts_as_low_only_where_asked() -> None:
    cell = torch.full((1, 1, 1, 1), 3.0)
    assert float(scale_low_frequencies(cell, 1, 0.5, 2.0, is_mean_low=True)) == 1.5
    assert float(scale_low_frequencies(cell, 1, 0.5, 2.0)) == 6.0
