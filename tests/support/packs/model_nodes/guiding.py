"""Bring an own sampler, an own guider and own noise for the nodes of custom sampling."""

from __future__ import annotations

from typing import Any, ClassVar

import comfy.k_diffusion.sampling as sampling
import comfy.samplers
import torch
from comfy_extras.nodes_custom_sampler import Noise_RandomNoise


def sample_own_euler(
    model: Any, x: torch.Tensor, sigmas: torch.Tensor, extra_args: Any = None, callback: Any = None,
    disable: Any = None, push: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """Euler, written as packs write samplers."""
    extra_args = {} if extra_args is None else extra_args
    ones = x.new_ones([x.shape[0]])
    for i in range(len(sigmas) - 1):
        denoised = model(x, sigmas[i] * ones, **extra_args)
        if callback is not None:
            callback({"x": x, "i": i, "sigma": sigmas[i], "sigma_hat": sigmas[i], "denoised": denoised})
        x = x + sampling.to_d(x, sigmas[i], denoised) * (sigmas[i + 1] - sigmas[i]) * push
    return x


setattr(sampling, "sample_own_euler", sample_own_euler)  # noqa: B010 - as packs do it
if "own_euler" not in comfy.samplers.KSampler.SAMPLERS:
    comfy.samplers.KSampler.SAMPLERS.append("own_euler")


class OwnSampler:
    """A SAMPLER of this pack."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("SAMPLER",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"push": ("FLOAT", {"default": 1.0})}}

    def run(self, push: float) -> Any:
        return (comfy.samplers.KSAMPLER(sample_own_euler, {"push": push}),)


class PositiveOnly(comfy.samplers.CFGGuider):
    """Follow the positive side, whatever the scale is."""

    def predict_noise(self, x: Any, timestep: Any, model_options: Any = None, seed: Any = None) -> Any:
        positive, _ = comfy.samplers.calc_cond_batch(
            self.inner_model, [self.conds["positive"], None], x, timestep, model_options or {}
        )
        return positive


class OwnGuider:
    """A GUIDER of this pack."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("GUIDER",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        sides = {"positive": ("CONDITIONING",), "negative": ("CONDITIONING",)}
        return {"required": {"model": ("MODEL",), **sides}}

    def run(self, model: Any, positive: Any, negative: Any) -> Any:
        guider = PositiveOnly(model)
        guider.set_conds(positive, negative)
        guider.set_cfg(8.0)
        return (guider,)


class OwnNoise:
    """A NOISE of this pack: that of a seed, turned around."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("NOISE",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"seed": ("INT", {"default": 0})}}

    def run(self, seed: int) -> Any:
        return (TurnedNoise(seed),)


class TurnedNoise(Noise_RandomNoise):
    """Noise with the other sign, twice: equal to that of the seed."""

    def generate_noise(self, input_latent: Any) -> Any:
        turned = -super().generate_noise(input_latent)
        return -turned


NODE_CLASS_MAPPINGS = {"ModelsOwnSampler": OwnSampler, "ModelsOwnGuider": OwnGuider, "ModelsOwnNoise": OwnNoise}
