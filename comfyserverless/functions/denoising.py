"""Take steps of a sampler's walk: the hot path of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from comfyserverless.core.errors import InvariantError
from comfyserverless.functions.guided import (
    denoise,
    describe,
    guidance_of,
    parametrization_of,
    point_of,
    to_output_units,
)
from comfyserverless.functions.preview import encode_preview
from comfyserverless.sampling.samplers.base import UncondSampler
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

PREVIEW_LATENT2RGB = "latent2rgb"
"""The preview method that shows the latent itself; any other value asks for no preview."""


class DenoiseStep(ModelFn):
    """Take one step of a sampler, or one evaluation of a step."""

    name: ClassVar[str] = "denoise.step"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        io.add_input("single_evaluation")
        io.add_input("preview")
        io.add_output("state")
        io.add_output("preview")
        io.add_output("upcoming")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        components = {"facts": pool.facts(inputs["model"]), "diffusion": pool.diffusion(inputs["model"])}
        if inputs["preview"] == PREVIEW_LATENT2RGB:
            components["colours"] = pool.colours(inputs["model"])
        return components

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the next state, a preview of the denoised latent as JPEG bytes if asked, and what is upcoming.

        Raises InvariantError if residuals of one evaluation are given for a step of several.
        """
        state, residuals = inputs["state"], inputs["residuals"]
        parametrization, sampler = parametrization_of(components["facts"]), find_sampler(state["sampler"])
        guidance = guidance_of(inputs, state["sampler"])
        step = state["walk"]["step"]
        while True:
            point = point_of(state, parametrization)
            estimate = denoise(point, guidance, components["diffusion"], residuals)
            denoised = estimate.denoised
            if point.kept is not None:
                denoised = point.kept.after(denoised)
            if isinstance(sampler, UncondSampler) and estimate.uncond is not None:
                walk = sampler.advance_with(state["walk"], denoised, estimate.uncond)
            else:
                walk = sampler.advance(state["walk"], denoised)
            state = {**state, "walk": walk}
            if inputs["single_evaluation"] or state["walk"]["step"] != step:
                break
            if len(residuals):
                raise InvariantError(f"step {step} has several evaluations, and residuals of one")
        preview = None
        if "colours" in components:
            samples = to_output_units(denoised, components["facts"])
            preview = encode_preview(components["colours"].latent_to_rgb(samples))
        evaluation = sampler.upcoming(state["walk"])
        upcoming = None if evaluation is None else describe(evaluation, guidance, parametrization)
        return {"state": state, "preview": preview, "upcoming": upcoming}
