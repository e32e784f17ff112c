"""Choose the noise levels of a walk: one function per schedule, by ComfyUI's names.

A schedule maps (parametrization, steps) to descending float32 levels that end in 0. Most give
steps + 1 levels; `ddim_uniform` and `beta` may give one more or fewer, as the original does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.parametrization import Parametrization

Schedule = Callable[[Parametrization, int], Tensor]


def _levels(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def _with_zero(sigmas: Tensor) -> Tensor:
    return torch.cat([sigmas, sigmas.new_zeros([1])])


def simple(parametrization: Parametrization, steps: int) -> Tensor:
    """Pick trained levels at equal distances, counted from the noisiest."""
    sigmas = parametrization.sigmas
    stride = len(sigmas) / steps
    return _levels([float(sigmas[-(1 + int(i * stride))]) for i in range(steps)] + [0.0])


def ddim_uniform(parametrization: Parametrization, steps: int) -> Tensor:
    """Pick every n-th trained level from the second on: DDIM's linear subsequence (Song et al. 2021)."""
    sigmas = parametrization.sigmas
    starts_at_zero = math.isclose(float(sigmas[1]), 0.0, abs_tol=0.00001)
    stride = max(len(sigmas) // (steps + 1 if starts_at_zero else steps), 1)
    picked = [float(level) for level in sigmas[1::stride]]
    return _levels((picked if starts_at_zero else [0.0, *picked])[::-1])


def _uniform_in_time(parametrization: Parametrization, steps: int, keeps_end: bool) -> Tensor:
    start = float(parametrization.timestep(torch.tensor(parametrization.sigma_max)))
    end = float(parametrization.timestep(torch.tensor(parametrization.sigma_min)))
    appends_zero = True
    if keeps_end:
        if math.isclose(float(parametrization.sigma(torch.tensor(end))), 0.0, abs_tol=0.00001):
            steps, appends_zero = steps + 1, False
        times = torch.linspace(start, end, steps)
    else:
        times = torch.linspace(start, end, steps + 1)[:-1]
    levels = [float(parametrization.sigma(time)) for time in times]
    return _levels([*levels, 0.0] if appends_zero else levels)


def normal(parametrization: Parametrization, steps: int) -> Tensor:
    """Space the timesteps evenly from the highest to the lowest trained level, both included."""
    return _uniform_in_time(parametrization, steps, keeps_end=True)


def sgm_uniform(parametrization: Parametrization, steps: int) -> Tensor:
    """Space the timesteps evenly, leaving out the last one (the spacing of Stability's generative-models)."""
    return _uniform_in_time(parametrization, steps, keeps_end=False)


def karras(parametrization: Parametrization, steps: int, rho: float = 7.0) -> Tensor:
    """Space sigma^(1/rho) evenly (Karras et al. 2022, equation 5)."""
    low, high = parametrization.sigma_min ** (1 / rho), parametrization.sigma_max ** (1 / rho)
    return _with_zero((high + torch.linspace(0, 1, steps) * (low - high)) ** rho)


def exponential(parametrization: Parametrization, steps: int) -> Tensor:
    """Space log sigma evenly."""
    high, low = math.log(parametrization.sigma_max), math.log(parametrization.sigma_min)
    return _with_zero(torch.linspace(high, low, steps).exp())


def beta(parametrization: Parametrization, steps: int, alpha: float = 0.6, beta: float = 0.6) -> Tensor:
    """Space the timesteps by quantiles of a beta distribution (Lee et al. 2024, arXiv 2407.12173).

    Steps that fall on the same trained level are merged, so many steps give fewer levels. Raises PromptError
    for shapes that are no distribution.
    """
    for name, shape in (("alpha", alpha), ("beta", beta)):
        if not shape > 0:
            raise PromptError(f"{name} is {shape:g}; allowed: above 0")
    last_index = len(parametrization.sigmas) - 1
    quantiles = 1 - np.linspace(0, 1, steps, endpoint=False)
    times = np.rint(scipy.stats.beta.ppf(quantiles, alpha, beta) * last_index)
    distinct = [int(time) for i, time in enumerate(times) if i == 0 or time != times[i - 1]]
    return _levels([float(parametrization.sigmas[time]) for time in distinct] + [0.0])


def linear_quadratic(parametrization: Parametrization, steps: int, threshold: float = 0.025) -> Tensor:
    """Fall linearly by `threshold` in the first half, then quadratically (Polyak et al. 2024, Movie Gen)."""
    if steps == 1:
        return _levels([1.0, 0.0]) * parametrization.sigma_max
    linear_steps = steps // 2
    quadratic_steps = steps - linear_steps
    excess = linear_steps - threshold * steps
    a = excess / (linear_steps * quadratic_steps**2)
    b = threshold / linear_steps - 2 * excess / (quadratic_steps**2)
    c = a * (linear_steps**2)
    fallen = [i * threshold / linear_steps for i in range(linear_steps)]
    fallen += [a * i**2 + b * i + c for i in range(linear_steps, steps)]
    return _levels([1.0 - share for share in [*fallen, 1.0]]) * parametrization.sigma_max


def kl_optimal(parametrization: Parametrization, steps: int) -> Tensor:
    """Space arctan sigma evenly (Sabour et al. 2024, Align Your Steps, theorem 3.1)."""
    share = torch.arange(steps, dtype=torch.float32).div_(steps - 1)
    low, high = math.atan(parametrization.sigma_min), math.atan(parametrization.sigma_max)
    return _with_zero((share * low + (1 - share) * high).tan_())


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        "simple": simple,
        "sgm_uniform": sgm_uniform,
        "karras": karras,
        "exponential": exponential,
        "ddim_uniform": ddim_uniform,
        "beta": beta,
        "normal": normal,
        "linear_quadratic": linear_quadratic,
        "kl_optimal": kl_optimal,
    }
)


def schedule_levels(name: str, parametrization: Parametrization, steps: int) -> Tensor:
    """Return the levels of a schedule by name. Raises PromptError naming the known ones for another name."""
    schedule = SCHEDULES.get(name)
    if schedule is None:
        raise PromptError(f"scheduler {name!r} is not supported; known: {', '.join(SCHEDULES)}")
    return schedule(parametrization, steps)
