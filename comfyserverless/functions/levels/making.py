"""Make lists of noise levels: SIGMAS is [N] float32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.core.modelfn import Lane
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.patching.subject import take_subject
from comfyserverless.models.families.units import to_model_units, to_output_units
from comfyserverless.sampling import levels, schedules
from comfyserverless.sampling.noise import starting_noise
from comfyserverless.sampling.parametrization import Parametrization
from comfyserverless.sampling.sigmas import WalkRequest, walk_sigmas

_TURBO_STEPS = 10


class _OfModel(HostFn):
    """A function that reads the facts of a model, and no weights."""

    lane: ClassVar[Lane] = "gpu"

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Read the facts of the model."""
        return take_subject(inputs["model"], pool)


class SigmasSchedule(_OfModel):
    """Space the levels of a model by one of the schedulers' names."""

    name = "sigmas.schedule"
    takes = "model scheduler steps denoise"
    gives = "sigmas"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the levels that a KSampler of this scheduler, steps and denoise walks."""
        request = WalkRequest(inputs["scheduler"], inputs["steps"], inputs["denoise"])
        return {"sigmas": walk_sigmas(components["subject"].parametrization, request)}


class SigmasBeta(_OfModel):
    """Space the levels of a model by quantiles of a beta distribution."""

    name = "sigmas.beta"
    takes = "model steps alpha beta"
    gives = "sigmas"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the levels (see `schedules.beta`)."""
        parametrization = components["subject"].parametrization
        return {"sigmas": schedules.beta(parametrization, inputs["steps"], inputs["alpha"], inputs["beta"])}


class SigmasTurbo(_OfModel):
    """Take the few levels that distilled models are trained at."""

    name = "sigmas.turbo"
    takes = "model steps denoise"
    gives = "sigmas"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return so many of the levels at tenths of the way, from the share `denoise` on, and 0."""
        start = _TURBO_STEPS - int(_TURBO_STEPS * inputs["denoise"])
        times = torch.flip(torch.arange(1, _TURBO_STEPS + 1) * 100 - 1, (0,))[start : start + inputs["steps"]]
        sigmas = components["subject"].parametrization.sigma(times)
        return {"sigmas": torch.cat([sigmas, sigmas.new_zeros([1])])}


class SigmasAtPercent(_OfModel):
    """Find the level at a share of the way."""

    name = "sigmas.at_percent"
    takes = "model percent is_actual"
    gives = "sigma"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the level as a number; is_actual: a trained one at both ends, not one beyond them."""
        parametrization: Parametrization = components["subject"].parametrization
        percent = inputs["percent"]
        if inputs["is_actual"] and percent in (0.0, 1.0):
            return {"sigma": parametrization.sigma_min if percent else parametrization.sigma_max}
        return {"sigma": parametrization.percent_to_sigma(percent)}


SHAPES: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        "karras": levels.karras,
        "exponential": levels.exponential,
        "polyexponential": levels.polyexponential,
        "laplace": levels.laplace,
        "vp": levels.variance_preserving,
        "align_your_steps": levels.align_your_steps,
        "flip": levels.flip,
        "extend": levels.extend,
    }
)
"""The ways to make and change levels without a model, by name."""


class SigmasShape(HostFn):
    """Space levels without a model, or change a list of them."""

    name = "sigmas.shape"
    takes = "shape sigmas settings"
    gives = "sigmas"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the levels; sigmas: the list to change, or None; settings: keyword arguments of the shape."""
        given = () if inputs["sigmas"] is None else (inputs["sigmas"],)
        return {"sigmas": SHAPES[inputs["shape"]](*given, **inputs["settings"])}


class SigmasSplit(HostFn):
    """Cut a list of levels in two."""

    name = "sigmas.split"
    takes = "sigmas step"
    gives = "high low"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the levels up to a step, and from it on; a negative step counts from the end."""
        sigmas, step = inputs["sigmas"], inputs["step"]
        at = max(0, len(sigmas) - 1 + step) if step < 0 else step
        return {"high": sigmas[: at + 1], "low": sigmas[at:]}


class SigmasSet(HostFn):
    """Write levels down, or replace the first one."""

    name = "sigmas.set"
    takes = "sigmas first"
    gives = "sigmas"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the levels, a list of numbers or a tensor, with another first one unless that is None."""
        sigmas = torch.as_tensor(inputs["sigmas"], dtype=torch.float32).clone()
        if inputs["first"] is not None and len(sigmas):
            sigmas[0] = inputs["first"]
        return {"sigmas": sigmas}


class LatentNoise(_OfModel):
    """Add noise to a latent as a sampler would at the start of a walk."""

    name = "latent.noise"
    takes = "model samples batch_index sigmas seed"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the latent with the noise that lies between the first and the last level.

        seed: of the noise; None for none. An empty list of levels leaves the latent as it is.
        """
        samples, sigmas, facts = inputs["samples"], inputs["sigmas"], components["subject"].facts
        if not len(sigmas):
            return {"samples": samples}
        level = (sigmas[0] - sigmas[-1]).abs() if len(sigmas) > 1 else sigmas[0]
        noise = torch.zeros_like(samples)
        if inputs["seed"] is not None:
            noise = starting_noise(samples, inputs["seed"], inputs["batch_index"])
        noisy = components["subject"].parametrization.starting_latent(
            level, noise, to_model_units(samples, facts)
        )
        return {"samples": torch.nan_to_num(to_output_units(noisy, facts), nan=0.0, posinf=0.0, neginf=0.0)}
