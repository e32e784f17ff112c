"""ComfyUI's `comfy.samplers`."""

from importlib import import_module
from typing import Any

from comfyserverless.core.samplers import SAMPLER_NAMES as _ENGINE_NAMES
from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.conditions import convert_cond
from comfyserverless.host.sampling.evaluating import calc_cond_batch
from comfyserverless.host.sampling.guidance import cfg_function, sampling_function
from comfyserverless.host.sampling.guiders import CFGGuider
from comfyserverless.host.sampling.ksampler import SAMPLER_LIST, SCHEDULER_LIST, KSampler, sample
from comfyserverless.host.sampling.levels import (
    SCHEDULER_HANDLERS,
    SchedulerHandler,
    beta_scheduler,
    calculate_sigmas,
    ddim_scheduler,
    kl_optimal_scheduler,
    linear_quadratic_schedule,
    normal_scheduler,
    simple_scheduler,
)
from comfyserverless.host.sampling.methods import KSAMPLER, KSamplerX0Inpaint, Sampler, ksampler, sampler_object

k_diffusion_sampling = import_module("comfy.k_diffusion.sampling")
KSAMPLER_NAMES = [name for name in _ENGINE_NAMES if name not in ("ddim", "uni_pc", "uni_pc_bh2")]
SAMPLER_NAMES = SAMPLER_LIST
SCHEDULER_NAMES = SCHEDULER_LIST


def process_conds(
    model: Any,
    noise: Any,
    conds: Any,
    device: Any,
    latent_image: Any = None,
    denoise_mask: Any = None,
    **more: Any,
) -> Any:
    """Return sides as they are: areas, masks and shares of the way are worked out on the workers."""
    return conds


def get_sampler_object(name: str) -> Any:
    """Return the sampler of a name."""
    return sampler_object(name)


__all__ = [
    "KSAMPLER",
    "KSAMPLER_NAMES",
    "SAMPLER_NAMES",
    "SCHEDULER_HANDLERS",
    "SCHEDULER_NAMES",
    "CFGGuider",
    "KSampler",
    "KSamplerX0Inpaint",
    "Sampler",
    "SchedulerHandler",
    "beta_scheduler",
    "calc_cond_batch",
    "calculate_sigmas",
    "cfg_function",
    "convert_cond",
    "ddim_scheduler",
    "k_diffusion_sampling",
    "kl_optimal_scheduler",
    "ksampler",
    "linear_quadratic_schedule",
    "normal_scheduler",
    "process_conds",
    "sample",
    "sampler_object",
    "sampling_function",
    "simple_scheduler",
]
__getattr__ = refused(__name__)
