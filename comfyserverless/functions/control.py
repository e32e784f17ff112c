"""Run ControlNets: what they add to the model's blocks at one evaluation of a sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.functions.guided import (
    LATENT_CELL_PX,
    Point,
    guidance_of,
    model_inputs,
    parametrization_of,
    point_of,
)
from comfyserverless.sampling.guidance import Batch, fit_batch
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

_PORTS = ("model", "control_net", "state", "positive", "negative", "cfg", "applications", "application")


class ControlNetRun(ModelFn):
    """Compute one control application at the evaluation that a sampler's state asks for."""

    name: ClassVar[str] = "controlnet.run"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in _PORTS:
            io.add_input(port)
        io.add_output("residuals")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the ControlNet, and of the model what shapes its inputs."""
        return {
            "facts": pool.facts(inputs["model"]),
            "diffusion": pool.diffusion(inputs["model"]),
            "control_net": pool.controlnet(inputs["control_net"]),
        }

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return residuals by batch index, times strength, for each batch whose chain has the application."""
        guidance = guidance_of(inputs, inputs["state"]["sampler"])
        point = point_of(inputs["state"], parametrization_of(components["facts"]))
        index: int = inputs["application"]
        return {
            "residuals": {
                str(batch.index): self._run(components, point, batch, guidance.applications[index])
                for batch in point.batches(guidance)
                if index in batch.controls
            }
        }

    def _run(
        self, components: Mapping[str, Any], point: Point, batch: Batch, application: Mapping[str, Any]
    ) -> list[Tensor]:
        control_net, x = components["control_net"], point.x
        inputs = model_inputs(point, batch, components["diffusion"])
        height_px, width_px = x.shape[-2] * LATENT_CELL_PX, x.shape[-1] * LATENT_CELL_PX
        hint = control_net.prepare_hint(application["hint"], width_px, height_px)
        # One hint for all items stays one: it goes through its layers once, and is added to every item.
        hints = hint if hint.shape[0] == 1 else batch.stack(fit_batch(hint, x.shape[0]))
        residuals = control_net.residuals(inputs.x_in, inputs.timesteps, inputs.context, hints, inputs.adm)
        strength: float = application["strength"]
        return list(residuals) if strength == 1.0 else [residual * strength for residual in residuals]
