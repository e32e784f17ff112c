"""Begin and end a sampler's walk; `denoising` takes the steps between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import DIFFERENTIAL_DIFFUSION, ModelRef
from comfyserverless.functions.guided import describe, guidance_of
from comfyserverless.functions.limits.room import check_room
from comfyserverless.functions.patching.options import STREAM, draws_numbers
from comfyserverless.functions.patching.subject import Subject, take_subject
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.families.units import to_model_units, to_output_units
from comfyserverless.sampling.masking import gradual_change, latent_mask
from comfyserverless.sampling.noise import starting_noise, stream_behind
from comfyserverless.sampling.samplers.base import Sampler
from comfyserverless.sampling.samplers.ddpm import sizes_of
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sampling.sigmas import WalkRequest, check_scheduled, check_walk, walk_sigmas, walking
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

_WALK_PORTS = (
    "seed",
    "steps",
    "cfg",
    "guide",
    "sampler",
    "options",
    "scheduler",
    "sigmas",
    "denoise",
    "start_step",
    "last_step",
    "force_full_denoise",
    "add_noise",
    "keeps_estimate",
)

_NO_PLAN: Mapping[str, Any] = {"steps": 0, "maximum": 0, "is_dynamic": False, "shape": [], "evaluations": []}
"""The plan of a walk without steps."""


class SampleBegin(ModelFn):
    """Draw the noise, choose the levels, and plan the evaluations of one sampling call."""

    name: ClassVar[str] = "sample.begin"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "latent", "positive", "negative", "applications", *_WALK_PORTS):
            io.add_input(port)
        io.add_output("state")
        io.add_output("plan")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Read the facts of the model; no weights."""
        return take_subject(inputs["model"], pool)

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the state at the start and the plan; a walk without steps holds its result already.

        No level leaves the latent alone; one level, as SplitSigmas gives out at its ends, noises it.

        sigmas: the levels to walk, or None to choose them by scheduler, steps, denoise and the range of steps.
        keeps_estimate: have the walk keep what `sample.end` gives out as `estimate`.

        Raises PromptError for an unknown sampler or scheduler, levels that cannot be walked, or a latent of
        another family.
        """
        subject: Subject = components["subject"]
        facts, parametrization = subject.facts, subject.parametrization
        sampler = find_sampler(inputs["sampler"])
        samples = _fit_channels(inputs["latent"]["samples"], facts)
        if inputs["sigmas"] is None:
            request = _walk_request(sampler, inputs)
            sigmas = check_scheduled(walk_sigmas(parametrization, request), request)
        else:
            sigmas = check_walk(inputs["sigmas"])
        if not len(sigmas):
            return {"state": {"samples": samples}, "plan": _NO_PLAN}
        latent = to_model_units(samples, facts)
        noise = _noise(samples, inputs)
        x = parametrization.starting_latent(sigmas[0], noise, latent)
        if len(sigmas) == 1:
            x = parametrization.remove_noise_scale(sigmas[0], x)
            return {"state": {"samples": to_output_units(x.float(), facts)}, "plan": _NO_PLAN}
        shares = {**sampler.percent_options, **inputs["options"].get("shares", {})}
        options = {
            **{name: parametrization.percent_to_sigma(share) for name, share in shares.items()},
            **inputs["options"],
        }
        if options.get("upscale") is not None:
            _check_growth(x, len(sigmas), options["upscale"], inputs["latent"])
        with walking(inputs["sampler"]):
            walk = sampler.begin(x, sigmas, inputs["seed"], options)
        state: dict[str, Any] = {"sampler": inputs["sampler"], "walk": walk}
        if draws_numbers(subject.options):
            stream = stream_behind(samples, inputs["seed"], inputs["latent"].get("batch_index"))
            state["memory"] = {STREAM: {"state": stream}}
        if inputs["keeps_estimate"]:
            state["estimate"] = {"step": -1, "x": None}
        if inputs["latent"].get("noise_mask") is not None:
            if sampler.uses_fresh_noise_for_mask:
                noise = starting_noise(samples, inputs["seed"] + 1).to(samples.device)
            mask = latent_mask(inputs["latent"]["noise_mask"], latent)
            state["mask"] = {"mask": mask, "noise": noise, "latent": latent}
            strength = _change_strength(inputs["model"])
            if strength is None:
                state["original"] = samples
            else:
                state["mask"]["change"] = gradual_change(strength, sigmas, parametrization)
        return {"state": state, "plan": _plan(inputs, subject, sampler, sigmas, options)}


class SampleEnd(ModelFn):
    """Turn the state at the end of a walk into a latent."""

    name: ClassVar[str] = "sample.end"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("model")
        io.add_input("state")
        io.add_output("samples")
        io.add_output("estimate")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Read the facts of the model; no weights."""
        return take_subject(inputs["model"], pool)

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples [B, C, h, w] float32 in output latent units.

        estimate: what the first evaluation of the last step gave for the clean latent, in the same units, if
        the walk kept it; else None. What a mask keeps wholly is the original to the last bit, if the walk ends
        without noise: there samplers come back to it but for rounding.
        """
        state, subject = inputs["state"], components["subject"]
        facts = subject.facts
        if "samples" in state:
            return {"samples": state["samples"], "estimate": None}
        walk, sampler = state["walk"], find_sampler(state["sampler"])
        last = walk["sigmas"][-1]
        x = subject.parametrization.remove_noise_scale(torch.tensor(last), sampler.result(walk))
        samples = to_output_units(x.float(), facts)
        if "original" in state and last == 0 and not sampler.ends_above_zero:
            samples = torch.where(state["mask"]["mask"] == 0, state["original"], samples)
        kept = state.get("estimate", {}).get("x")
        return {"samples": samples, "estimate": None if kept is None else to_output_units(kept.float(), facts)}


def _fit_channels(samples: Tensor, facts: ModelFacts) -> Tensor:
    """Give an empty latent the channels of the model's family; a latent with content must have them."""
    channels = facts.latent_channels
    if samples.shape[1] == channels:
        return samples
    if torch.count_nonzero(samples) > 0:
        raise PromptError(f"the latent has {samples.shape[1]} channels, but the model takes {channels}")
    return samples.new_zeros([samples.shape[0], channels, *samples.shape[2:]])


def _check_growth(x: Tensor, level_count: int, upscale: Mapping[str, Any], latent: Mapping[str, Any]) -> None:
    """Refuse a walk that enlarges a latent with a mask, or makes it too large."""
    if latent.get("noise_mask") is not None:
        raise PromptError("this sampler enlarges the latent: it cannot keep what a noise mask covers")
    for width, height in sizes_of(x.shape, level_count, upscale):
        check_room((*x.shape[:2], height, width), "latents")


def _change_strength(model: ModelRef) -> float | None:
    """Return how strongly the mask's values set when cells change; None if they are mixed at every step."""
    for patch in model.patches:
        if patch.name == DIFFERENTIAL_DIFFUSION:
            return float(dict(patch.arguments)["strength"] or 0.0)
    return None


def _noise(samples: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    given: Tensor | None = inputs["latent"].get("given_noise")
    if given is not None:
        return given.to(samples)
    if not inputs["add_noise"]:
        return torch.zeros_like(samples)
    return starting_noise(samples, inputs["seed"], inputs["latent"].get("batch_index")).to(samples.device)


def _walk_request(sampler: Sampler, inputs: Mapping[str, Any]) -> WalkRequest:
    return WalkRequest(
        scheduler=inputs["scheduler"],
        steps=inputs["steps"],
        denoise=inputs["denoise"],
        start_step=inputs["start_step"],
        last_step=inputs["last_step"],
        force_full_denoise=inputs["force_full_denoise"],
        discards_penultimate=sampler.discards_penultimate_sigma,
    )


def _plan(
    inputs: Mapping[str, Any],
    subject: Subject,
    sampler: Sampler,
    sigmas: Tensor,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """List the evaluations, all or, in a dynamic walk, the first."""
    guidance = guidance_of(inputs, inputs["sampler"], subject)
    with walking(inputs["sampler"]):
        evaluations = sampler.evaluations(sigmas, options)
    shape = inputs["latent"]["samples"].shape
    return {
        "steps": evaluations[-1].step + 1 if evaluations else 0,
        "maximum": len(sigmas) - 1,
        "is_dynamic": sampler.is_dynamic,
        "shape": list(shape),
        "evaluations": [
            describe(evaluation, guidance, subject.parametrization, shape[-2:]) for evaluation in evaluations
        ],
    }
