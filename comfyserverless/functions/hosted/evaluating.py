"""Evaluate the sides of guidance at one point, for samplers that are driven elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from comfyserverless.functions.guided import evaluate_sides, guidance_of, parametrization_of, point_of
from comfyserverless.sampling.guidance import MIDDLE, NEGATIVE, POSITIVE
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

SIDES: Mapping[str, int] = {"positive": POSITIVE, "negative": NEGATIVE, "middle": MIDDLE}


class DenoiseEvaluate(ModelFn):
    """Give the estimate of the clean latent of each side, not put together."""

    name: ClassVar[str] = "denoise.evaluate"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "guide", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        for port in SIDES:
            io.add_output(port)

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        return {"facts": pool.facts(inputs["model"]), "diffusion": pool.diffusion(inputs["model"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return positive, negative, middle: [B, C, h, w] each, or None for one that takes no part."""
        guidance = guidance_of(inputs, inputs["state"]["sampler"])
        point = point_of(inputs["state"], parametrization_of(components["facts"]))
        given = evaluate_sides(point, guidance, components["diffusion"], inputs["residuals"])
        return {name: given.get(side) for name, side in SIDES.items()}
