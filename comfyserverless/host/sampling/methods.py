"""Hold samplers as objects (`comfy.samplers.KSAMPLER`): a function, and what a noise mask keeps around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.samplers import SAMPLER_NAMES
from comfyserverless.host.sampling.walking import EngineFunction, engine_function

_FRESH_NOISE = {"random": True}


class Sampler:
    """The base of samplers; packs subclass it, too."""

    def sample(
        self,
        model_wrap: Any,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Any,
        noise: Tensor,
        latent_image: Tensor | None = None,
        denoise_mask: Tensor | None = None,
        disable_pbar: bool = False,
    ) -> Tensor:
        """Return the latent at the last level."""
        raise NotImplementedError(f"{type(self).__name__}.sample")

    def max_denoise(self, model_wrap: Any, sigmas: Tensor) -> bool:
        """Tell whether a walk starts at the highest level of the model or above it."""
        highest, first = float(model_wrap.inner_model.model_sampling.sigma_max), float(sigmas[0])
        return math.isclose(highest, first, rel_tol=1e-05) or first > highest


class KSamplerX0Inpaint:
    """The model as samplers call it: a guider, with the original where a mask keeps it."""

    def __init__(self, model: Any, sigmas: Tensor) -> None:
        self.inner_model = model
        self.sigmas = sigmas
        self.latent_image: Any = None
        self.noise: Any = None

    def __call__(
        self,
        x: Tensor,
        sigma: Tensor,
        denoise_mask: Tensor | None = None,
        model_options: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **more: Any,
    ) -> Tensor:
        """Return the estimate of the clean latent."""
        options = model_options or {}
        if denoise_mask is None:
            denoised: Tensor = self.inner_model(x, sigma, model_options=options, seed=seed)
            return denoised
        if "denoise_mask_function" in options:
            extra = {"model": self.inner_model, "sigmas": self.sigmas}
            denoise_mask = options["denoise_mask_function"](sigma, denoise_mask, extra_options=extra)
        assert denoise_mask is not None, "the function of a mask returns one"
        kept = 1.0 - denoise_mask
        process = self.inner_model.inner_model.model_sampling
        level = sigma.reshape([sigma.shape[0]] + [1] * (self.noise.ndim - 1))
        x = x * denoise_mask + process.noise_scaling(level, self.noise, self.latent_image) * kept
        denoised = self.inner_model(x, sigma, model_options=options, seed=seed)
        blended: Tensor = denoised * denoise_mask + self.latent_image * kept
        return blended


class KSAMPLER(Sampler):
    """A sampler made of a function `fn(model, x, sigmas, extra_args, callback, disable, **options)`."""

    def __init__(
        self,
        sampler_function: Callable[..., Any],
        extra_options: Mapping[str, Any] | None = None,
        inpaint_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.sampler_function = sampler_function
        self.extra_options = dict(extra_options or {})
        self.inpaint_options = dict(inpaint_options or {})

    @property
    def engine_name(self) -> str | None:
        """Return the name under which workers know this sampler; None for a function of a pack."""
        function = self.sampler_function
        if type(self) is not KSAMPLER or not isinstance(function, EngineFunction):
            return None
        return function.engine_name

    def sample(
        self,
        model_wrap: Any,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Any,
        noise: Tensor,
        latent_image: Tensor | None = None,
        denoise_mask: Tensor | None = None,
        disable_pbar: bool = False,
    ) -> Tensor:
        """Return the latent at the last level; callback: (step, denoised, x, steps)."""
        extra_args["denoise_mask"] = denoise_mask
        model_k = KSamplerX0Inpaint(model_wrap, sigmas)
        model_k.latent_image, model_k.noise = latent_image, noise
        if self.inpaint_options.get("random", False):
            generator = torch.manual_seed(int(extra_args.get("seed") or 41) + 1)
            model_k.noise = torch.randn(noise.shape, generator=generator, device="cpu").to(noise)
        process = model_wrap.inner_model.model_sampling
        latent = torch.zeros_like(noise) if latent_image is None else latent_image
        start = process.noise_scaling(sigmas[0], noise, latent, self.max_denoise(model_wrap, sigmas))
        steps = len(sigmas) - 1

        def tell(told: Mapping[str, Any]) -> None:
            callback(told["i"], told["denoised"], told["x"], steps)

        samples = self.sampler_function(
            model_k,
            start,
            sigmas,
            extra_args=extra_args,
            callback=tell if callback is not None else None,
            disable=disable_pbar,
            **self.extra_options,
        )
        ended: Tensor = process.inverse_noise_scaling(sigmas[-1], samples)
        return ended


def find_function(name: str) -> Callable[..., Any]:
    """Return `sample_<name>` of `comfy.k_diffusion.sampling`, ours or what a pack has put there.

    Raises AttributeError naming it.
    """
    from importlib import import_module

    function: Callable[..., Any] = getattr(import_module("comfy.k_diffusion.sampling"), f"sample_{name}")
    return function


def ksampler(
    sampler_name: str,
    extra_options: Mapping[str, Any] | None = None,
    inpaint_options: Mapping[str, Any] | None = None,
) -> KSAMPLER:
    """Return the sampler of a name with settings."""
    return KSAMPLER(find_function(sampler_name), extra_options, inpaint_options)


def sampler_object(name: str) -> KSAMPLER:
    """Return the sampler of a name that nodes list."""
    if name in SAMPLER_NAMES and name.startswith(("ddim", "uni_pc")):
        return KSAMPLER(engine_function(name), inpaint_options=_FRESH_NOISE if name == "ddim" else None)
    return ksampler(name)


def sampler_of(value: Mapping[str, Any]) -> KSAMPLER:
    """Return the object for the SAMPLER of a built-in node."""
    made = sampler_object(value["name"])
    made.extra_options = dict(value["options"])
    return made


def sampler_tree(sampler: KSAMPLER) -> dict[str, Any] | None:
    """Return the value of a SAMPLER; None for one with a function of a pack."""
    if sampler.engine_name is None:
        return None
    return {"kind": "SAMPLER", "name": sampler.engine_name, "options": dict(sampler.extra_options)}
