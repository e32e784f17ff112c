"""Offer the engine's samplers as functions `sample_<name>(model, x, sigmas, ...)`, as
`comfy.k_diffusion.sampling` does.

A function drives a sampler's explicit state here and calls `model(x, sigma, **extra_args)` for each evaluation,
which may be anything that a pack has put around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.bridge import bridge
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models.options import copy_options, set_model_options_post_cfg_function
from comfyserverless.host.sampling.kdiffusion import BrownianTreeNoiseSampler, PlainNoise
from comfyserverless.sampling.samplers.base import Sampler, UncondSampler
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sampling.sigmas import walking

SampleFunction = Callable[..., Tensor]
_NOISE = "noise_sampler"


class EngineFunction:
    """One sampler of the engine as a function of packs."""

    def __init__(self, engine_name: str) -> None:
        self.engine_name = engine_name
        self.__name__ = self.__qualname__ = f"sample_{engine_name}"
        self.__doc__ = f"Walk down the levels with {engine_name}."

    def __reduce__(self) -> Any:
        return engine_function, (self.engine_name,)

    def __call__(
        self,
        model: Any,
        x: Tensor,
        sigmas: Tensor,
        extra_args: Mapping[str, Any] | None = None,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        disable: Any = None,
        **options: Any,
    ) -> Tensor:
        """Return the latent at the last level.

        callback: gets {x, i, sigma, sigma_hat, denoised} once for each step; options: of the sampler, as eta.
        Raises NotSupportedError for a source of noise that a pack has written.
        """
        given = {name: value for name, value in options.items() if name != _NOISE and value is not None}
        if not isinstance(options.get(_NOISE), BrownianTreeNoiseSampler | PlainNoise | None):
            refuse(f"{self.__name__} with a {_NOISE} of its own", "each sampler draws its noise from the seed")
        with torch.inference_mode(), walking(self.engine_name):
            return _Walk(find_sampler(self.engine_name), model, dict(extra_args or {}), callback).run(
                x, sigmas, given
            )


class _Walk:
    """One walk; uncond: what the negative alone said at the last evaluation, for samplers that use it."""

    def __init__(
        self,
        sampler: Sampler,
        model: Any,
        extra_args: dict[str, Any],
        callback: Callable[[dict[str, Any]], Any] | None,
    ) -> None:
        self._sampler, self._model, self._callback = sampler, model, callback
        self._extra = extra_args
        self._uncond: Tensor | None = None
        if isinstance(sampler, UncondSampler):
            options = copy_options(dict(extra_args.get("model_options") or {}))
            seen = set_model_options_post_cfg_function(
                options, self._keep_uncond, disable_cfg1_optimization=True
            )
            self._extra["model_options"] = seen

    def run(self, x: Tensor, sigmas: Tensor, options: Mapping[str, Any]) -> Tensor:
        if len(sigmas) < 2:
            return x
        sampler = self._sampler
        levels = sigmas.detach().float().cpu()
        options = {**_shares(sampler, self._model, options), **options}
        state = sampler.begin(x, levels, int(self._extra.get("seed") or 0), options)
        told = -1
        for evaluation in self._evaluations(state, levels, options):
            point, sigma = sampler.query(state)
            bridge().throw_if_interrupted()
            denoised = self._model(point, sigma.to(x) * x.new_ones([x.shape[0]]), **self._extra)
            if self._callback is not None and told != evaluation:
                told = evaluation
                self._callback(
                    {"x": point, "i": evaluation, "sigma": sigma, "sigma_hat": sigma, "denoised": denoised}
                )
            if isinstance(sampler, UncondSampler) and self._uncond is not None:
                state = sampler.advance_with(state, denoised, self._uncond)
            else:
                state = sampler.advance(state, denoised)
            self._state = state
        return sampler.result(state)

    def _evaluations(self, state: dict[str, Any], sigmas: Tensor, options: Mapping[str, Any]) -> Any:
        """Yield the step of each evaluation, of dynamic walks as they come."""
        self._state = state
        if not self._sampler.is_dynamic:
            yield from (each.step for each in self._sampler.evaluations(sigmas, options))
            return
        upcoming = next(iter(self._sampler.evaluations(sigmas, options)), None)
        while upcoming is not None:
            yield upcoming.step
            upcoming = self._sampler.upcoming(self._state)

    def _keep_uncond(self, args: Mapping[str, Any]) -> Tensor:
        self._uncond = args["uncond_denoised"]
        denoised: Tensor = args["denoised"]
        return denoised


def _shares(sampler: Sampler, model: Any, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the levels of options that are given by their share of the way."""
    shares = {**sampler.percent_options, **options.get("shares", {})}
    while shares and not hasattr(model, "model_sampling"):
        model = model.inner_model
    return {name: float(model.model_sampling.percent_to_sigma(share)) for name, share in shares.items()}


_functions: dict[str, EngineFunction] = {}


def engine_function(name: str) -> EngineFunction:
    """Return the function of a sampler, the same object each time."""
    return _functions.setdefault(name, EngineFunction(name))
