"""Evaluate the sides of guidance at one point, for samplers that are driven elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from comfyserverless.functions.guided import AddedBy, Point, denoise, evaluate_sides, guidance_of, point_of
from comfyserverless.functions.patching.evaluation import PatchedEvaluation, Walk
from comfyserverless.functions.patching.subject import take_diffusion
from comfyserverless.sampling.guidance import MIDDLE, NEGATIVE, POSITIVE, Guidance, is_in_range
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

SIDES: Mapping[str, int] = {"positive": POSITIVE, "negative": NEGATIVE, "middle": MIDDLE}


class DenoiseEvaluate(ModelFn):
    """Give the estimate of the clean latent of each side, or with `guided` of all of them put together."""

    name: ClassVar[str] = "denoise.evaluate"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "guide", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        io.add_input("guided")
        for port in SIDES:
            io.add_output(port)

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        return take_diffusion(inputs["model"], pool)

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return positive, negative, middle: [B, C, h, w] each, or None for one that takes no part.

        guided: `positive` is what guidance gives, with the model's patches; `negative` the negative beside it.
        """
        state, subject, diffusion = inputs["state"], components["subject"], components["diffusion"]
        guidance = guidance_of(inputs, state["sampler"], subject)
        point = point_of(state, subject)
        residuals = _acting(inputs["residuals"], guidance, point)
        patched = None
        if subject.options is not None:
            patched = PatchedEvaluation(
                point, guidance, diffusion, residuals, Walk(state["walk"]["sigmas"], {})
            )
        if inputs["guided"]:
            estimate = patched.estimate() if patched else denoise(point, guidance, diffusion, residuals)
            return {"positive": estimate.denoised, "negative": estimate.uncond, "middle": None}
        given = patched.sides() if patched else evaluate_sides(point, guidance, diffusion, residuals)
        return {name: given.get(side) for name, side in SIDES.items()}


def _acting(residuals: AddedBy, guidance: Guidance, point: Point) -> AddedBy:
    """Leave out what applications add that do not act at this level."""
    sigma = float(point.sigma)
    return [
        added if is_in_range(guidance.applications[index], sigma, point.parametrization) else None
        for index, added in enumerate(residuals)
    ]
