"""Draw the noise of a walk: the latent's starting noise, fresh noise per step, and Brownian increments.

Every draw can be repeated in another process from literals and tensors alone. Seeds are integers modulo
2^64. Starting noise always comes from the CPU generator, so it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torchsde
from torch import Tensor

_SEED_RANGE = 1 << 64

_TREE_DIGITS = 6
"""Decimals that torchsde keeps of a time, at its default tolerance."""

NoiseState = dict[str, Any]
"""What continues a stream of step noise: literals and tensors, kept inside a sampler's state."""


def starting_noise(latent: Tensor, seed: int, batch_index: Sequence[int] | None = None) -> Tensor:
    """Return standard normal noise of the latent's shape and dtype, on the CPU.

    batch_index: which items of a larger batch these are: item n gets the n-th draw, so that a part of a batch
    gets the noise that it had in the whole. None draws the whole batch at once.
    """
    return _draw_starting(latent, torch.Generator("cpu").manual_seed(seed % _SEED_RANGE), batch_index)


def stream_behind(latent: Tensor, seed: int, batch_index: Sequence[int] | None = None) -> Tensor:
    """Return the state of the generator behind the starting noise, where other draws of a walk go on."""
    generator = torch.Generator("cpu").manual_seed(seed % _SEED_RANGE)
    _draw_starting(latent, generator, batch_index)
    return generator.get_state()


def _draw_starting(latent: Tensor, generator: torch.Generator, batch_index: Sequence[int] | None) -> Tensor:
    if batch_index is None:
        return torch.randn(latent.shape, dtype=latent.dtype, generator=generator)
    draws: dict[int, Tensor] = {}
    wanted = set(batch_index)
    for n in range(max(wanted) + 1):
        draw = torch.randn([1, *latent.shape[1:]], dtype=latent.dtype, generator=generator)
        if n in wanted:
            draws[n] = draw
    return torch.cat([draws[n] for n in batch_index])


def begin_step_noise(x: Tensor, seed: int) -> NoiseState:
    """Start a stream of fresh noise for the steps of an ancestral sampler.

    On the CPU the seed is one higher than that of the starting noise, or the first draw would repeat it; other
    devices have other generators. The stream stays with the kind of device that it began on.
    """
    offset = 1 if x.device.type == "cpu" else 0
    generator = torch.Generator(x.device).manual_seed((seed + offset) % _SEED_RANGE)
    return {"device": x.device.type, "generator": generator.get_state()}


def continue_noise(x: Tensor, seed: int) -> NoiseState:
    """Start a stream of fresh noise behind the starting noise of a latent like x.

    Starting noise is the CPU's: on other devices it has not drawn anything yet.
    """
    if x.device.type == "cpu":
        return {"device": "cpu", "generator": stream_behind(x, seed)}
    return begin_step_noise(x, seed)


def draw_step_noise(noise: NoiseState, x: Tensor) -> tuple[Tensor, NoiseState]:
    """Draw noise of x's shape, dtype and device; return it with the stream behind it. Inputs are unchanged."""
    device = x.device if noise["device"] == x.device.type else torch.device(noise["device"])
    generator = torch.Generator(device)
    generator.set_state(noise["generator"].cpu())
    draw = torch.randn(x.shape, dtype=x.dtype, device=device, generator=generator)
    return draw.to(x.device), {"device": noise["device"], "generator": generator.get_state()}


def begin_brownian(x: Tensor, sigmas: Tensor, seed: int, on_cpu: bool = True) -> NoiseState:
    """Start Brownian noise over the range of levels above zero. on_cpu: the same bits on every machine.

    The increments are fixed by seed, range and shape alone (Li et al. 2020, Scalable Gradients for SDEs,
    section 4), so the state never changes.
    """
    low, high = float(sigmas[sigmas > 0].min()), float(sigmas.max())
    device = "cpu" if on_cpu else x.device.type
    return {"device": device, "seed": seed % _SEED_RANGE, "sigma_min": low, "sigma_max": high}


def brownian_increment(noise: Mapping[str, Any], sigma: Tensor, sigma_next: Tensor, x: Tensor) -> Tensor:
    """Return the normalised increment of the Brownian motion from sigma to sigma_next, x's shape and device.

    The tree is built anew for each call: that costs a tenth of the query, and needs no state outside of the
    inputs.
    """
    first, last = noise["sigma_min"], noise["sigma_max"]
    start = torch.zeros(x.shape, dtype=x.dtype, device=noise["device"])
    tree = torchsde.BrownianTree(torch.tensor(first), start, torch.tensor(last), entropy=noise["seed"])
    # The tree rounds its ends, so that the ends of the range may lie outside of it by less than its tolerance.
    low, high = round(first, _TREE_DIGITS), round(last, _TREE_DIGITS)
    begin, end = (min(max(float(level), low), high) for level in (sigma, sigma_next))
    increment: Tensor = tree(begin, end) if begin < end else -tree(end, begin)
    return increment.to(x.device) / (sigma_next - sigma).abs().sqrt()
