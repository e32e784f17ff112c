"""Name the samplers that are supported, by ComfyUI's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.samplers.adams import Ipndm, IpndmV, Lms
from comfyserverless.sampling.samplers.base import Sampler
from comfyserverless.sampling.samplers.ddpm import Ddpm, Lcm
from comfyserverless.sampling.samplers.deis import Deis
from comfyserverless.sampling.samplers.dpm_solver.adaptive import DpmAdaptive
from comfyserverless.sampling.samplers.dpm_solver.fast import DpmFast
from comfyserverless.sampling.samplers.dpmpp import Dpmpp2M, Dpmpp2MCfgPp, Dpmpp2MSde, Dpmpp3MSde
from comfyserverless.sampling.samplers.er_sde import ErSde
from comfyserverless.sampling.samplers.euler import (
    Ddim,
    Euler,
    EulerAncestral,
    EulerAncestralCfgPp,
    GradientEstimation,
    GradientEstimationCfgPp,
)
from comfyserverless.sampling.samplers.heun import Heun, HeunPP2
from comfyserverless.sampling.samplers.midpoint import (
    Dpm2,
    Dpm2Ancestral,
    Dpmpp2SAncestral,
    Dpmpp2SAncestralCfgPp,
    DpmppSde,
)
from comfyserverless.sampling.samplers.res import ResMultistep, ResMultistepCfgPp
from comfyserverless.sampling.samplers.sa_solver import SaSolver
from comfyserverless.sampling.samplers.seeds import Seeds2, Seeds3
from comfyserverless.sampling.samplers.uni_pc import UniPC

SAMPLERS: Mapping[str, Sampler] = MappingProxyType(
    {
        "euler": Euler(),
        "euler_cfg_pp": EulerAncestralCfgPp(ancestral=False),
        "euler_ancestral": EulerAncestral(),
        "euler_ancestral_cfg_pp": EulerAncestralCfgPp(),
        "heun": Heun(),
        "heunpp2": HeunPP2(),
        "exp_heun_2_x0": Seeds2(r=1.0, solver="phi_2", is_ode=True),
        "exp_heun_2_x0_sde": Seeds2(r=1.0, solver="phi_2"),
        "dpm_2": Dpm2(),
        "dpm_2_ancestral": Dpm2Ancestral(),
        "lms": Lms(),
        "dpm_fast": DpmFast(),
        "dpm_adaptive": DpmAdaptive(),
        "dpmpp_2s_ancestral": Dpmpp2SAncestral(),
        "dpmpp_2s_ancestral_cfg_pp": Dpmpp2SAncestralCfgPp(),
        "dpmpp_sde": DpmppSde(),
        "dpmpp_sde_gpu": DpmppSde(on_cpu=False),
        "dpmpp_2m": Dpmpp2M(),
        "dpmpp_2m_cfg_pp": Dpmpp2MCfgPp(),
        "dpmpp_2m_sde": Dpmpp2MSde(),
        "dpmpp_2m_sde_gpu": Dpmpp2MSde(on_cpu=False),
        "dpmpp_2m_sde_heun": Dpmpp2MSde("heun"),
        "dpmpp_2m_sde_heun_gpu": Dpmpp2MSde("heun", on_cpu=False),
        "dpmpp_3m_sde": Dpmpp3MSde(),
        "dpmpp_3m_sde_gpu": Dpmpp3MSde(on_cpu=False),
        "ddpm": Ddpm(),
        "lcm": Lcm(),
        "ipndm": Ipndm(),
        "ipndm_v": IpndmV(),
        "deis": Deis(),
        "res_multistep": ResMultistep(),
        "res_multistep_cfg_pp": ResMultistepCfgPp(),
        "res_multistep_ancestral": ResMultistep(ancestral=True),
        "res_multistep_ancestral_cfg_pp": ResMultistepCfgPp(ancestral=True),
        "gradient_estimation": GradientEstimation(),
        "gradient_estimation_cfg_pp": GradientEstimationCfgPp(),
        "er_sde": ErSde(),
        "seeds_2": Seeds2(),
        "seeds_3": Seeds3(),
        "sa_solver": SaSolver(),
        "sa_solver_pece": SaSolver(use_pece=True),
        "ddim": Ddim(),
        "uni_pc": UniPC("bh1"),
        "uni_pc_bh2": UniPC("bh2"),
    }
)


def find_sampler(name: str) -> Sampler:
    """Return a sampler by name. Raises PromptError naming the known ones for another name."""
    sampler = SAMPLERS.get(name)
    if sampler is None:
        raise PromptError(f"sampler {name!r} is not supported; known: {', '.join(SAMPLERS)}")
    return sampler
