"""Take steps of a sampler's walk: the hot path of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.core.errors import InvariantError, ModelFileError
from comfyserverless.core.values import VaeRef
from comfyserverless.functions.guided import denoise, parametrization_of, point_of
from comfyserverless.functions.preview import fit_latent_to_rgb, latent_preview
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.sampling.guidance import Guidance
from comfyserverless.sampling.masking import KeptPart
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class DenoiseStep(ModelFn):
    """Take one step of a sampler, or one evaluation of a step."""

    name: ClassVar[str] = "denoise.step"

    def __init__(self) -> None:
        #: Preview maps of the autoencoders that previews were asked of; facts of their files, so never stale.
        self._fitted: dict[VaeRef, Tensor | None] = {}

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        io.add_input("single_evaluation")
        io.add_input("preview")
        io.add_output("state")
        io.add_output("preview")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        components = {"facts": pool.facts(inputs["model"]), "diffusion": pool.diffusion(inputs["model"])}
        if inputs["preview"] == "latent2rgb":
            components["latent_to_rgb"] = self._latent_to_rgb(
                VaeRef(inputs["model"].file), components["facts"], pool
            )
        return components

    def _latent_to_rgb(self, vae: VaeRef, facts: ModelFacts, pool: Any) -> Tensor | None:
        """Return the preview map of a checkpoint; None if the model's file has no autoencoder to fit it to."""
        if vae not in self._fitted:
            try:
                self._fitted[vae] = fit_latent_to_rgb(pool.vae(vae), facts)
            except ModelFileError:
                self._fitted[vae] = None
        return self._fitted[vae]

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the next state, and a preview of the denoised latent as JPEG bytes if one is asked for.

        Raises InvariantError if residuals of one evaluation are given for a step of several.
        """
        state, residuals = inputs["state"], inputs["residuals"]
        parametrization, sampler = parametrization_of(components["facts"]), find_sampler(state["sampler"])
        guidance = Guidance(inputs["positive"], inputs["negative"], inputs["cfg"], inputs["applications"])
        step = state["walk"]["step"]
        while True:
            denoised = denoise(point_of(state, parametrization), guidance, components["diffusion"], residuals)
            if "mask" in state:
                denoised = KeptPart(**state["mask"]).after(denoised)
            state = {**state, "walk": sampler.advance(state["walk"], denoised)}
            if inputs["single_evaluation"] or state["walk"]["step"] != step:
                break
            if len(residuals):
                raise InvariantError(f"step {step} has several evaluations, and residuals of one")
        latent_to_rgb = components.get("latent_to_rgb")
        preview = None if latent_to_rgb is None else latent_preview(denoised, latent_to_rgb)
        return {"state": state, "preview": preview}
