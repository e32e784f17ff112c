"""Space noise levels by the schedulers' names, and by functions that packs add (`SCHEDULER_HANDLERS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from comfyserverless.core.samplers import SCHEDULER_NAMES
from comfyserverless.sampling import schedules
from comfyserverless.sampling.processes.foreign import ForeignParametrization

DISCARDS_PENULTIMATE = ["dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2"]
"""Samplers that cannot use the level before 0."""


class SchedulerHandler(NamedTuple):
    """How a scheduler is called: with a noise process and steps, or with the ends of the range."""

    handler: Callable[..., Tensor]
    use_ms: bool = True


def _process(model_sampling: Any) -> Any:
    return ForeignParametrization(model_sampling)


def _of_process(name: str) -> Callable[..., Tensor]:
    def schedule(model_sampling: Any, steps: int, **more: Any) -> Tensor:
        return schedules.SCHEDULES[name](_process(model_sampling), steps, **more)

    schedule.__name__ = f"{name}_scheduler"
    return schedule


def get_sigmas_karras(
    n: int, sigma_min: float, sigma_max: float, rho: float = 7.0, device: Any = "cpu"
) -> Tensor:
    """Space sigma^(1/rho) evenly (Karras et al. 2022, equation 5)."""
    low, high = float(sigma_min) ** (1 / rho), float(sigma_max) ** (1 / rho)
    sigmas: Tensor = (high + torch.linspace(0, 1, n) * (low - high)) ** rho
    return torch.cat([sigmas, sigmas.new_zeros([1])]).to(device)


def get_sigmas_exponential(n: int, sigma_min: float, sigma_max: float, device: Any = "cpu") -> Tensor:
    """Space log sigma evenly."""
    high, low = (torch.tensor(float(each)).log() for each in (sigma_max, sigma_min))
    sigmas = torch.linspace(float(high), float(low), n).exp()
    return torch.cat([sigmas, sigmas.new_zeros([1])]).to(device)


def get_sigmas_polyexponential(
    n: int, sigma_min: float, sigma_max: float, rho: float = 1.0, device: Any = "cpu"
) -> Tensor:
    """Space log sigma by a power of the way."""
    high, low = (float(torch.tensor(float(each)).log()) for each in (sigma_max, sigma_min))
    sigmas = torch.exp(torch.linspace(1, 0, n) ** rho * (high - low) + low)
    return torch.cat([sigmas, sigmas.new_zeros([1])]).to(device)


def get_sigmas_vp(
    n: int, beta_d: float = 19.9, beta_min: float = 0.1, eps_s: float = 1e-3, device: Any = "cpu"
) -> Tensor:
    """Space the time of a continuous VP process evenly (Karras et al. 2022, table 1, column VP)."""
    times = torch.linspace(1, eps_s, n)
    sigmas = torch.sqrt(torch.special.expm1(beta_d * times**2 / 2 + beta_min * times))
    return torch.cat([sigmas, sigmas.new_zeros([1])]).to(device)


def normal_scheduler(model_sampling: Any, steps: int, sgm: bool = False, floor: bool = False) -> Tensor:
    """Space timesteps evenly; sgm: without the last one."""
    name = "sgm_uniform" if sgm else "normal"
    return schedules.SCHEDULES[name](_process(model_sampling), steps)


SCHEDULER_HANDLERS: dict[str, SchedulerHandler] = {
    name: SchedulerHandler(_of_process(name)) for name in SCHEDULER_NAMES
}
"""What makes levels, by name; packs add to it."""


def calculate_sigmas(model_sampling: Any, scheduler_name: str, steps: int) -> Tensor:
    """Return the levels of a scheduler, [steps + 1] float32. Raises ValueError for an unknown name."""
    handler = SCHEDULER_HANDLERS.get(scheduler_name)
    if handler is None:
        known = ", ".join(SCHEDULER_HANDLERS)
        raise ValueError(f"scheduler {scheduler_name!r} is not known; known: {known}")
    if handler.use_ms:
        return handler.handler(model_sampling, steps)
    return handler.handler(
        n=steps, sigma_min=float(model_sampling.sigma_min), sigma_max=float(model_sampling.sigma_max)
    )


simple_scheduler = _of_process("simple")
ddim_scheduler = _of_process("ddim_uniform")
beta_scheduler = _of_process("beta")
linear_quadratic_schedule = _of_process("linear_quadratic")


def kl_optimal_scheduler(n: int, sigma_min: float, sigma_max: float) -> Tensor:
    """Space arctan sigma evenly (Sabour et al. 2024, theorem 3.1)."""
    share = torch.arange(n, dtype=torch.float32).div_(n - 1)
    low, high = (float(torch.tensor(float(each)).atan()) for each in (sigma_min, sigma_max))
    sigmas = (share * low + (1 - share) * high).tan_()
    return torch.cat([sigmas, sigmas.new_zeros([1])])
