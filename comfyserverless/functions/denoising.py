"""Take steps of a sampler's walk: the hot path of the server.

The negative branch of an evaluation may be a call of its own: it publishes its estimate when that is there, and
the step on another worker, which began with the positive branch beside it, waits where it puts both together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.core.errors import InvariantError
from comfyserverless.functions.guided import (
    DENOISED,
    Point,
    denoise,
    denoise_negative,
    describe,
    guidance_of,
    point_of,
)
from comfyserverless.functions.patching.evaluation import PatchedEvaluation, Walk
from comfyserverless.functions.patching.subject import take_diffusion
from comfyserverless.functions.preview import show_later
from comfyserverless.models.families.base import DiffusionModel
from comfyserverless.sampling.guidance import Branch, Estimate, Guidance
from comfyserverless.sampling.samplers.base import Sampler, UncondSampler
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sampling.sigmas import walking
from comfyserverless.sdk.modelfn import IoSetup, ModelFn, Streamed

_MEASURED = 3
"""How often `denoise.weigh` measures each; the least counts."""


class DenoiseStep(ModelFn):
    """Take one step of a sampler, or one evaluation of a step; with `uncond`, of the positive branch only."""

    name: ClassVar[str] = "denoise.step"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "guide", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        io.add_input("uncond", callback=True)
        io.add_input("single_evaluation")
        io.add_input("preview")
        io.add_output("state")
        io.add_output("preview")
        io.add_output("upcoming")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        components = take_diffusion(inputs["model"], pool)
        if inputs["preview"] is not None:
            components["previewer"] = pool.previewer
        return components

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the next state, a preview of the denoised latent if asked (later), and what is upcoming.

        Raises InvariantError if residuals or the negative of one evaluation are given for a step of several.
        """
        state, residuals, uncond = inputs["state"], inputs["residuals"], inputs["uncond"]
        subject, sampler = components["subject"], find_sampler(state["sampler"])
        guidance = guidance_of(inputs, state["sampler"], subject, "both" if uncond is None else "positive")
        step = state["walk"]["step"]
        while True:
            point = point_of(state, subject)
            estimate, state = _estimate(state, point, guidance, components["diffusion"], (residuals, uncond))
            denoised = estimate.denoised
            if point.kept is not None:
                denoised = point.kept.after(denoised)
            state = _keep_first(state, denoised)
            state = _advance(sampler, state, denoised, estimate.uncond)
            if inputs["single_evaluation"] or state["walk"]["step"] != step:
                break
            if len(residuals) or uncond is not None:
                raise InvariantError(f"step {step} has several evaluations, and what was made for one")
        preview = None
        if inputs["preview"] is not None:
            preview = show_later(components["previewer"], inputs["model"], denoised, inputs["preview"])
        evaluation = sampler.upcoming(state["walk"])
        upcoming = None
        if evaluation is not None:
            guidance = guidance_of(inputs, state["sampler"], subject)
            upcoming = describe(evaluation, guidance, subject.parametrization, point.x.shape[-2:])
        return {"state": state, "preview": preview, "upcoming": upcoming}


def _estimate(
    state: Mapping[str, Any], point: Point, guidance: Guidance, diffusion: DiffusionModel, made: tuple[Any, Any]
) -> tuple[Estimate, Mapping[str, Any]]:
    """Evaluate; return the estimate, and the state with what patches remember of it.

    made: residuals and the negative's estimate that were made elsewhere.
    """
    residuals, uncond = made
    if point.subject.options is None:
        return denoise(point, guidance, diffusion, residuals, uncond), state
    memory = {name: dict(kept) for name, kept in state.get("memory", {}).items()}
    walk = Walk(state["walk"]["sigmas"], memory)
    evaluation = PatchedEvaluation(point, guidance, diffusion, residuals, walk)
    estimate = evaluation.estimate(None if uncond is None else uncond[DENOISED][0])
    return estimate, {**state, "memory": memory} if memory else state


def _advance(
    sampler: Sampler, state: Mapping[str, Any], denoised: Tensor, uncond: Tensor | None
) -> Mapping[str, Any]:
    """Let the sampler go on. Raises PromptError for levels and settings that it cannot calculate with."""
    with walking(state["sampler"]):
        if isinstance(sampler, UncondSampler) and uncond is not None:
            return {**state, "walk": sampler.advance_with(state["walk"], denoised, uncond)}
        return {**state, "walk": sampler.advance(state["walk"], denoised)}


def _keep_first(state: Mapping[str, Any], denoised: Tensor) -> Mapping[str, Any]:
    """Keep the estimate of a step's first evaluation, if the sampling node gives it out."""
    kept = state.get("estimate")
    step = state["walk"]["step"]
    return (
        state if kept is None or kept["step"] == step else {**state, "estimate": {"step": step, "x": denoised}}
    )


class DenoiseNegative(ModelFn):
    """Evaluate the negative branch at the evaluation that a sampler's state asks for."""

    name: ClassVar[str] = "denoise.negative"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "guide", "applications"):
            io.add_input(port)
        io.add_input("residuals", callback=True)
        io.add_output("uncond", callback=True)

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        return take_diffusion(inputs["model"], pool)

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the estimate of the clean latent, [B, C, h, w]."""
        return {"uncond": Streamed({DENOISED: 1}, self._make(components, inputs))}

    @torch.no_grad()
    def _make(
        self, components: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> Iterator[tuple[str, int, Tensor]]:
        state, subject, diffusion = inputs["state"], components["subject"], components["diffusion"]
        guidance = guidance_of(inputs, state["sampler"], subject, "negative")
        point, residuals = point_of(state, subject), inputs["residuals"]
        if subject.options is None:
            yield DENOISED, 0, denoise_negative(point, guidance, diffusion, residuals)
        else:
            walk = Walk(state["walk"]["sigmas"], {})
            yield DENOISED, 0, PatchedEvaluation(point, guidance, diffusion, residuals, walk).negative()


class DenoiseWeigh(ModelFn):
    """Measure an evaluation with both branches together, and with one, for whoever decides about splitting."""

    name: ClassVar[str] = "denoise.weigh"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "state", "positive", "negative", "cfg", "guide", "applications"):
            io.add_input(port)
        io.add_output("batched_s")
        io.add_output("branch_s")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the diffusion model."""
        return take_diffusion(inputs["model"], pool)

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the seconds of both, the least of a few."""
        self._measure_s(components, inputs, "both")  # what is loaded, and chosen, at a first call
        seen = [
            (self._measure_s(components, inputs, "both"), self._measure_s(components, inputs, "positive"))
            for _ in range(_MEASURED)
        ]
        return {"batched_s": min(both for both, _ in seen), "branch_s": min(one for _, one in seen)}

    @torch.no_grad()
    def _measure_s(self, components: Mapping[str, Any], inputs: Mapping[str, Any], branch: Branch) -> float:
        state, subject, begin_s = inputs["state"], components["subject"], time.perf_counter()
        point = point_of(state, subject)
        guidance = guidance_of(inputs, state["sampler"], subject, branch)
        uncond = None if branch == "both" else {DENOISED: [point.x]}
        estimate, _ = _estimate(state, point, guidance, components["diffusion"], ([], uncond))
        estimate.denoised.sum().item()  # waits for the device
        return time.perf_counter() - begin_s
