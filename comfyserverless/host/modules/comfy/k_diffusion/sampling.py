"""ComfyUI's `comfy.k_diffusion.sampling`; packs put samplers of their own into it as `sample_<name>`."""

from tqdm.auto import tqdm, trange

from comfyserverless.core.samplers import SAMPLER_NAMES as _NAMES
from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.kdiffusion import (
    BatchedBrownianTree,
    BrownianTreeNoiseSampler,
    append_dims,
    append_zero,
    default_noise_sampler,
    get_ancestral_step,
    half_log_snr_to_sigma,
    linear_multistep_coeff,
    sigma_to_half_log_snr,
    to_d,
)
from comfyserverless.host.sampling.levels import (
    get_sigmas_exponential,
    get_sigmas_karras,
    get_sigmas_polyexponential,
    get_sigmas_vp,
)
from comfyserverless.host.sampling.walking import engine_function

for _name in _NAMES:
    globals()[f"sample_{_name}"] = engine_function(_name)

__all__ = [
    "BatchedBrownianTree",
    "BrownianTreeNoiseSampler",
    "append_dims",
    "append_zero",
    "default_noise_sampler",
    "get_ancestral_step",
    "get_sigmas_exponential",
    "get_sigmas_karras",
    "get_sigmas_polyexponential",
    "get_sigmas_vp",
    "half_log_snr_to_sigma",
    "linear_multistep_coeff",
    "sigma_to_half_log_snr",
    "to_d",
    "tqdm",
    "trange",
]
__getattr__ = refused(__name__)
