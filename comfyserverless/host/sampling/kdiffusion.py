"""Offer the small functions of `comfy.k_diffusion.sampling` that packs build samplers with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torchsde
from torch import Tensor

_SEED_RANGE = 1 << 63


def append_zero(x: Tensor) -> Tensor:
    """Return levels with a 0 at the end."""
    return torch.cat([x, x.new_zeros([1])])


def append_dims(x: Tensor, target_dims: int) -> Tensor:
    """View x with as many dimensions as wanted. Raises ValueError if it has more."""
    if x.ndim > target_dims:
        raise ValueError(f"input has {x.ndim} dims but target_dims is {target_dims}, which is less")
    return x[(..., *[None] * (target_dims - x.ndim))]


def to_d(x: Tensor, sigma: Tensor, denoised: Tensor) -> Tensor:
    """Return dx/dsigma of the probability flow ODE (Karras et al. 2022, equation 3)."""
    return (x - denoised) / append_dims(sigma, x.ndim)


def get_ancestral_step(sigma_from: Any, sigma_to: Any, eta: float = 1.0) -> tuple[Any, Any]:
    """Split a step into the level to step to and the noise to add (Ho et al. 2020, equation 7)."""
    if not eta:
        return sigma_to, 0.0
    variance = sigma_to**2 * (sigma_from**2 - sigma_to**2) / sigma_from**2
    sigma_up = min(sigma_to, eta * variance**0.5)
    return (sigma_to**2 - sigma_up**2) ** 0.5, sigma_up


def default_noise_sampler(x: Tensor, seed: int | None = None) -> Callable[[Any, Any], Tensor]:
    """Return what draws normal noise for a step; with a seed it has a generator of its own."""
    generator = None
    if seed is not None:
        offset = 1 if x.device.type == "cpu" else 0
        generator = torch.Generator(x.device).manual_seed(seed + offset)
    return PlainNoise(x, generator)


class PlainNoise:
    """Normal noise of a latent's shape for every step."""

    def __init__(self, x: Tensor, generator: torch.Generator | None) -> None:
        self._like, self._generator = x, generator

    def __call__(self, sigma: Any, sigma_next: Any) -> Tensor:
        """Draw."""
        x = self._like
        return torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=self._generator)


class BatchedBrownianTree:
    """Brownian motions whose increments depend on seeds and times alone; a list of seeds: one for each item."""

    def __init__(self, x: Tensor, t0: Any, t1: Any, seed: Any = None, cpu: bool = True, **kwargs: Any) -> None:
        self._device = x.device
        start = x.cpu() if cpu else x
        first, last = torch.as_tensor(t0).cpu(), torch.as_tensor(t1).cpu()
        self._first, self._last, self.sign = *sorted((first, last)), 1.0 if first < last else -1.0
        if seed is None:
            seed = int(torch.randint(0, _SEED_RANGE - 1, []).item())
        self.batched = isinstance(seed, list | tuple)
        seeds = list(seed) if self.batched else [seed]
        parts = [item.unsqueeze(0) for item in start] if self.batched else [start]
        self.trees = [
            torchsde.BrownianTree(self._first, torch.zeros_like(part), self._last, entropy=number)
            for part, number in zip(parts, seeds, strict=True)
        ]

    def __call__(self, t0: Any, t1: Any) -> Tensor:
        """Return the increment between two times."""
        begin, end = float(t0), float(t1)
        sign = self.sign if begin < end else -self.sign
        low, high = sorted((begin, end))
        increments = [tree(low, high).to(self._device) for tree in self.trees]
        return torch.cat(increments) * sign if self.batched else increments[0] * sign


class BrownianTreeNoiseSampler:
    """Normalised increments of a Brownian motion between levels (Li et al. 2020, section 4)."""

    def __init__(
        self,
        x: Tensor,
        sigma_min: Any,
        sigma_max: Any,
        seed: Any = None,
        transform: Callable[[Tensor], Tensor] = lambda x: x,
        cpu: bool = False,
    ) -> None:
        self.transform = transform
        first, last = self.transform(torch.as_tensor(sigma_min)), self.transform(torch.as_tensor(sigma_max))
        self.tree = BatchedBrownianTree(x, first, last, seed, cpu=cpu)

    def __call__(self, sigma: Any, sigma_next: Any) -> Tensor:
        """Return the increment between two levels, of unit variance."""
        first, last = self.transform(torch.as_tensor(sigma)), self.transform(torch.as_tensor(sigma_next))
        return self.tree(first, last) / (last - first).abs().sqrt()


def sigma_to_half_log_snr(sigma: Tensor, model_sampling: Any) -> Tensor:
    """Return lambda = log(alpha / sigma); of a flow alpha is 1 - sigma."""
    if getattr(model_sampling, "shift", None) is not None and not hasattr(model_sampling, "log_sigmas"):
        return sigma.logit().neg()
    return sigma.log().neg()


def half_log_snr_to_sigma(half_log_snr: Tensor, model_sampling: Any) -> Tensor:
    """Return the level of a lambda."""
    if getattr(model_sampling, "shift", None) is not None and not hasattr(model_sampling, "log_sigmas"):
        return half_log_snr.neg().sigmoid()
    return half_log_snr.neg().exp()


def linear_multistep_coeff(order: int, t: Any, i: int, j: int) -> float:
    """Return one coefficient of Adams-Bashforth over uneven steps."""
    if order - 1 > i:
        raise ValueError(f"Order {order} too high for step {i}")
    numerator = torch.ones(1, dtype=torch.float64)
    times = [float(each) for each in t]
    scale = 1.0
    for k in range(order):
        if k != j:
            scale *= times[i - j] - times[i - k]
            root = torch.tensor([-times[i - k], 1.0], dtype=torch.float64)
            numerator = _multiply(numerator, root)
    primitive = [float(c) / (power + 1) for power, c in enumerate(numerator)]
    ends = [math.fsum(c * at ** (power + 1) for power, c in enumerate(primitive)) for at in times[i : i + 2]]
    return (ends[1] - ends[0]) / scale


def _multiply(one: Tensor, two: Tensor) -> Tensor:
    """Multiply polynomials, coefficients from the constant up."""
    product = torch.zeros(len(one) + len(two) - 1, dtype=torch.float64)
    for at, factor in enumerate(one):
        product[at : at + len(two)] += factor * two
    return product
