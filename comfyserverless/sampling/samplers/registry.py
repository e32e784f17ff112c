"""Name the samplers that are supported, by ComfyUI's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.samplers.base import Sampler
from comfyserverless.sampling.samplers.dpmpp import Dpmpp2M, Dpmpp2MSde
from comfyserverless.sampling.samplers.euler import Ddim, Euler, EulerAncestral
from comfyserverless.sampling.samplers.heun import Heun
from comfyserverless.sampling.samplers.uni_pc import UniPC

SAMPLERS: Mapping[str, Sampler] = MappingProxyType(
    {
        "euler": Euler(),
        "euler_ancestral": EulerAncestral(),
        "heun": Heun(),
        "dpmpp_2m": Dpmpp2M(),
        "dpmpp_2m_sde": Dpmpp2MSde(),
        "dpmpp_2m_sde_gpu": Dpmpp2MSde(on_cpu=False),
        "dpmpp_2m_sde_heun": Dpmpp2MSde("heun"),
        "dpmpp_2m_sde_heun_gpu": Dpmpp2MSde("heun", on_cpu=False),
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
