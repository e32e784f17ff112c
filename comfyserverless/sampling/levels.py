"""Make and change lists of noise levels without a model: [N] float32, mostly descending."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.sigmas import MAX_LEVELS

_LAPLACE_MARGIN = 1e-5
_FLIPPED_ZERO = 0.0001
"""What a level of 0 becomes at the start of a walk: samplers divide by the first level."""

TRAINED_LEVELS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "SD1": (
            14.6146412293,
            6.4745760956,
            3.8636745985,
            2.6946151520,
            1.8841921177,
            1.3943805092,
            0.9642583904,
            0.6523686016,
            0.3977456272,
            0.1515232662,
            0.0291671582,
        ),
        "SDXL": (
            14.6146412293,
            6.3184485287,
            3.7681790315,
            2.1811480769,
            1.3405244945,
            0.8620721141,
            0.5550693289,
            0.3798540708,
            0.2332364134,
            0.1114188177,
            0.0291671582,
        ),
        "SVD": (700.00, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002),
    }
)
"""The ten-step schedules of Align Your Steps (Sabour et al. 2024, appendix), by kind of model."""


def karras(steps: int, sigma_min: float, sigma_max: float, rho: float) -> Tensor:
    """Space sigma^(1/rho) evenly (Karras et al. 2022, equation 5). Raises PromptError for rho 0 or near it."""
    if rho == 0:
        raise PromptError("rho is 0; allowed: above 0")
    try:
        low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    except OverflowError:
        raise PromptError(f"rho {rho:g} is too small for levels up to {max(sigma_min, sigma_max):g}") from None
    return _with_zero((high + torch.linspace(0, 1, steps) * (low - high)) ** rho)


def exponential(steps: int, sigma_min: float, sigma_max: float) -> Tensor:
    """Space log sigma evenly. Raises PromptError for a level of 0."""
    _check_positive(sigma_min, sigma_max)
    return _with_zero(torch.linspace(math.log(sigma_max), math.log(sigma_min), steps).exp())


def polyexponential(steps: int, sigma_min: float, sigma_max: float, rho: float) -> Tensor:
    """Space log sigma by a power of the way. Raises PromptError for a level of 0."""
    _check_positive(sigma_min, sigma_max)
    way = torch.linspace(1, 0, steps) ** rho
    low = math.log(sigma_min)
    return _with_zero(torch.exp(way * (math.log(sigma_max) - low) + low))


def laplace(steps: int, sigma_min: float, sigma_max: float, mu: float, beta: float) -> Tensor:
    """Space log sigma by Laplace quantiles (Hang et al. 2024, arXiv 2407.03297); no 0 follows."""
    away = 0.5 - torch.linspace(0, 1, steps)
    log_sigmas = mu - beta * torch.sign(away) * torch.log(1 - 2 * torch.abs(away) + _LAPLACE_MARGIN)
    return torch.clamp(torch.exp(log_sigmas), min=sigma_min, max=sigma_max)


def variance_preserving(steps: int, beta_d: float, beta_min: float, eps_s: float) -> Tensor:
    """Space the time of a continuous VP process evenly (Karras et al. 2022, table 1, column VP)."""
    times = torch.linspace(1, eps_s, steps)
    return _with_zero(torch.sqrt(torch.special.expm1(beta_d * times**2 / 2 + beta_min * times)))


def align_your_steps(kind: str, steps: int, denoise: float) -> Tensor:
    """Interpolate the schedule of a kind of model, log-linearly, and walk its last share `denoise`."""
    if denoise <= 0.0:
        return torch.zeros(0)
    walked = steps if denoise >= 1.0 else round(steps * denoise)
    trained = TRAINED_LEVELS[kind]
    sigmas = np.array(trained)
    if steps + 1 != len(trained):
        places, wanted = np.linspace(0, 1, len(trained)), np.linspace(0, 1, steps + 1)
        sigmas = np.exp(np.interp(wanted, places, np.log(sigmas[::-1])))[::-1].copy()
    sigmas = sigmas[-(walked + 1) :]
    sigmas[-1] = 0
    return torch.from_numpy(sigmas).float()


def flip(sigmas: Tensor) -> Tensor:
    """Turn a list around; a 0 at its start becomes a small level."""
    flipped = sigmas.flip(0)
    if len(flipped) and flipped[0] == 0:
        flipped[0] = _FLIPPED_ZERO
    return flipped


SPACINGS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "linear": lambda x: x,
        "cosine": lambda x: torch.sin(x * math.pi / 2),
        "sine": lambda x: 1 - torch.cos(x * math.pi / 2),
    }
)
"""How levels are put between two, by ComfyUI's names."""


def extend(sigmas: Tensor, steps: int, start: float, end: float, spacing: str) -> Tensor:
    """Make `steps` of each step whose first level lies in end..start (start below 0: no limit).

    Raises PromptError for more than MAX_LEVELS.
    """
    if not len(sigmas):
        return sigmas
    if len(sigmas) * steps > MAX_LEVELS:
        raise PromptError(f"{len(sigmas)} levels times {steps} steps: allowed are {MAX_LEVELS} levels")
    start = math.inf if start < 0 else start
    shares = SPACINGS[spacing](torch.linspace(0, 1, steps + 1)[1:-1])
    parts: list[Tensor] = []
    for current, following in pairwise(sigmas):
        parts.append(current[None])
        if end <= current <= start:
            parts.append(shares * (following - current) + current)
    return torch.cat([*parts, sigmas[-1:]])


def _with_zero(sigmas: Tensor) -> Tensor:
    return torch.cat([sigmas, sigmas.new_zeros([1])])


def _check_positive(sigma_min: float, sigma_max: float) -> None:
    for name, value in (("sigma_min", sigma_min), ("sigma_max", sigma_max)):
        if value <= 0:
            raise PromptError(f"{name} is {value:g}; allowed: above 0")
