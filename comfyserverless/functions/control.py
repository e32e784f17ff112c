"""Run ControlNets: what they add to the model's blocks at one evaluation of a sampler.

The residuals are a callback output: a denoising step on another worker starts meanwhile, and fetches each where
it uses it. U-Nets read the middle block's residual first and the finest input block's last, so do we.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.functions.guided import (
    LATENT_CELL_PX,
    Point,
    feature_name,
    guidance_of,
    model_inputs,
    point_of,
)
from comfyserverless.functions.patching.subject import take_diffusion
from comfyserverless.models.adapters.adapter import T2IAdapter
from comfyserverless.models.controlnet import ControlNet
from comfyserverless.sampling.guidance import Batch
from comfyserverless.sampling.stacking import fit_batch
from comfyserverless.sdk.modelfn import IoSetup, ModelFn, Streamed

_GUIDANCE_PORTS = ("model", "control_net", "state", "positive", "negative", "cfg", "guide", "applications")
_PORTS = (*_GUIDANCE_PORTS, "application", "branch")


class ControlNetRun(ModelFn):
    """Compute one control application at the evaluation that a sampler's state asks for."""

    name: ClassVar[str] = "controlnet.run"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in _PORTS:
            io.add_input(port)
        io.add_output("residuals", callback=True)

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the ControlNet, and of the model what shapes its inputs."""
        return {
            **take_diffusion(inputs["model"], pool),
            "control_net": pool.controlnet(inputs["control_net"]),
        }

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return residuals by batch index, times strength, for the branch's batches with the application."""
        subject = components["subject"]
        guidance = guidance_of(inputs, inputs["state"]["sampler"], subject, inputs["branch"])
        point = point_of(inputs["state"], subject)
        index: int = inputs["application"]
        batches = [batch for batch in point.batches(guidance) if index in batch.controls]
        names = [name for batch in batches for name, _ in _places(components["control_net"], batch)]
        lengths = dict(Counter(names))
        elements = self._make(components, point, batches, guidance.applications[index])
        return {"residuals": Streamed(lengths, elements)}

    @torch.no_grad()
    def _make(
        self,
        components: Mapping[str, Any],
        point: Point,
        batches: Sequence[Batch],
        application: Mapping[str, Any],
    ) -> Iterator[tuple[str, int, Tensor]]:
        strength: float = application["strength"]
        for batch in batches:
            residuals = self._run(components, point, batch, application["hint"])
            places = _places(components["control_net"], batch)
            for (name, at), residual in reversed(list(zip(places, residuals, strict=True))):
                yield name, at, residual if strength == 1.0 else residual * strength

    def _run(
        self, components: Mapping[str, Any], point: Point, batch: Batch, image: Tensor
    ) -> Sequence[Tensor]:
        control_net = components["control_net"]
        inputs = model_inputs(point, batch, components["diffusion"])
        height_px, width_px = (side * LATENT_CELL_PX for side in inputs.x_in.shape[-2:])
        hint = control_net.prepare_hint(image, width_px, height_px)
        # One hint for all items stays one: it goes through its layers once, and is added to every item.
        hints = hint if hint.shape[0] == 1 else _for_each(batch, fit_batch(hint, point.x.shape[0]))
        residuals: Sequence[Tensor] = control_net.residuals(
            inputs.x_in, inputs.timesteps, batch.control_context(point.x.shape[0]), hints, inputs.adm
        )
        return residuals


def _places(control_net: ControlNet | T2IAdapter, batch: Batch) -> list[tuple[str, int]]:
    """Return the list, and the place in it, of each residual for a batch; a feature has a list of its own."""
    if isinstance(control_net, T2IAdapter):
        return [(feature_name(batch.index, number), 0) for number in control_net.block_numbers]
    return [(str(batch.index), at) for at in range(control_net.residual_count)]


def _for_each(batch: Batch, hint: Tensor) -> Tensor:
    """Repeat hints once per entry."""
    return hint if len(batch.entries) == 1 else torch.cat([hint] * len(batch.entries))
