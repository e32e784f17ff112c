"""Evaluate a guided denoiser at the point where a sampler's walk stands.

controlnet.run, denoise.negative and denoise.step look at the same state, so all find the same latent, level and
batches here. A guided evaluation is one plan for both branches, or one plan for each (`guidance_of`): those are
evaluated in functions of their own, on two workers or one, with the same bits.
A walk's state as it travels between functions:
    {sampler: str, walk: the sampler's state, mask?: the fields of KeptPart,
     original?: the samples of a masked latent}
or, where there is nothing to walk, {samples: the result, in output latent units}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.patching.subject import Subject
from comfyserverless.functions.patching.view import mask_at
from comfyserverless.models.families.base import DiffusionModel, ModelFacts
from comfyserverless.models.families.units import to_model_units
from comfyserverless.models.residuals import WithFeatures
from comfyserverless.sampling.guidance import (
    NEGATIVE,
    POSITIVE,
    Batch,
    Branch,
    Estimate,
    Guidance,
    Outputs,
    average_side,
    combine,
    is_in_range,
    plan_batches,
)
from comfyserverless.sampling.inpainting import editing_input, inpainting_input
from comfyserverless.sampling.masking import KeptPart
from comfyserverless.sampling.parametrization import Parametrization
from comfyserverless.sampling.samplers.base import Evaluation, UncondSampler
from comfyserverless.sampling.samplers.registry import find_sampler
from comfyserverless.sampling.stacking import fit_batch

LATENT_CELL_PX = 8
"""Pixels per latent cell and side, for what models are told about the size of the image."""

PROMPT_TYPE = "prompt_type"
"""Option of an entry: `positive`, or `negative` for what is not wanted, whatever side it is on."""

DENOISED = "denoised"
"""The only list of what the `uncond` ports hold; it has one element."""

Residuals = Sequence[Tensor]

AddedBy = Sequence[Mapping[str, Residuals] | None]
"""What each control application adds, in the order of guidance.applications: by batch index, and by names of
features (`feature_name`); None or no entry where it does not act."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a walk is to be evaluated next: the latent [B, C, h, w] and its 0-dimensional level.

    subject: the model. kept: of a masked image, at this level; x holds it already. whole: as it is at the start
    of the walk.
    """

    x: Tensor
    sigma: Tensor
    subject: Subject
    kept: KeptPart | None = None
    whole: KeptPart | None = None

    @property
    def parametrization(self) -> Parametrization:
        """Return the noise process of the model."""
        return self.subject.parametrization

    def batches(self, guidance: Guidance) -> list[Batch]:
        """Plan the model calls of this evaluation."""
        return plan_batches(guidance, float(self.sigma), self.parametrization, self.x.shape[-2:])


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """The inputs of one model call for n entries.

    x_in: [n * B, C, h, w], scaled; timesteps: [n * B]; context: [n * B, T, D]; adm: [n * B, A] or None.
    """

    x_in: Tensor
    timesteps: Tensor
    context: Tensor
    adm: Tensor | None


def guidance_of(inputs: Mapping[str, Any], sampler: str, subject: Subject, branch: Branch = "both") -> Guidance:
    """Return what guides an evaluation, or a branch of it, from the ports that all sampling functions share."""
    return Guidance(
        inputs["positive"],
        inputs["negative"],
        inputs["cfg"],
        inputs["applications"],
        needs_negative=subject.needs_negative or isinstance(find_sampler(sampler), UncondSampler),
        branch=branch,
        **(inputs["guide"] or {}),
    )


def describe(
    evaluation: Evaluation, guidance: Guidance, parametrization: Parametrization, size: Sequence[int]
) -> dict[str, Any]:
    """Return an evaluation as a plan lists it, with the applications that act at its level on a batch.

    size: (h, w) of the latent in cells.
    """
    acting: dict[int, set[int]] = {}
    for batch in plan_batches(guidance, evaluation.sigma, parametrization, size):
        controls = {
            index
            for index in batch.controls
            if is_in_range(guidance.applications[index], evaluation.sigma, parametrization)
        }
        for entry in batch.entries:
            acting.setdefault(entry.side, set()).update(controls)
    return {
        "step": evaluation.step,
        "last_of_step": evaluation.is_last_of_step,
        "controls": sorted(set().union(*acting.values())),
        "branches": [sorted(acting[side]) for side in (POSITIVE, NEGATIVE)]
        if len(acting) > 1 and guidance.mode == "cfg"
        else None,
    }


def point_of(state: Mapping[str, Any], subject: Subject) -> Point:
    """Return the point that a state's walk asks for, with the kept part of a masked image put in."""
    x, sigma = find_sampler(state["sampler"]).query(state["walk"])
    if "mask" not in state:
        return Point(x, sigma, subject)
    parametrization = subject.parametrization
    whole = KeptPart(**state["mask"])
    kept = whole.at(sigma, parametrization)
    if subject.options is not None and "denoise_mask_function" in subject.options:
        kept = replace(kept, mask=mask_at(sigma, kept.mask, state["walk"]["sigmas"], subject))
    return Point(kept.before(x, sigma, parametrization), sigma, subject, kept, whole)


def model_inputs(point: Point, batch: Batch, diffusion: DiffusionModel) -> ModelInputs:
    """Stack what one model call needs."""
    x, sigma = point.x, point.sigma
    count = len(batch.entries) * x.shape[0]
    x_in = batch.stack(point.parametrization.calculate_input(sigma, x))
    timesteps = point.parametrization.timestep(sigma).to(x.device).expand(count)
    return ModelInputs(x_in, timesteps, batch.context(x.shape[0]), adm_of(batch, x, diffusion))


def prompt_type(side: int) -> str:
    """Return what vector conditions are told of a side; all but the positive are what is not wanted."""
    return "positive" if side == POSITIVE else "negative"


def adm_of(batch: Batch, x: Tensor, diffusion: DiffusionModel) -> Tensor | None:
    """Stack the vector conditions of a batch's entries for a latent x, None if the family has none."""
    height_px, width_px = x.shape[-2] * LATENT_CELL_PX, x.shape[-1] * LATENT_CELL_PX
    vectors: list[Tensor] = []
    for entry in batch.entries:
        options = {PROMPT_TYPE: prompt_type(entry.side), **entry.options}
        vector = diffusion.adm(options.get("pooled_output"), width_px, height_px, options)
        if vector is None:
            return None
        vectors.append(fit_batch(vector, x.shape[0]))
    return torch.cat(vectors)


def denoise(
    point: Point,
    guidance: Guidance,
    diffusion: DiffusionModel,
    residuals: AddedBy,
    uncond: Mapping[str, Sequence[Tensor]] | None = None,
) -> Estimate:
    """Return the estimate of the clean latent at a point; inputs are unchanged.

    uncond: what makes the negative's part elsewhere, if guidance plans the positive only; it is read last.
    """
    outputs = _evaluate(point, guidance, diffusion, residuals)
    return combine(guidance, outputs, point.x, None if uncond is None else uncond[DENOISED][0])


def denoise_negative(point: Point, guidance: Guidance, diffusion: DiffusionModel, residuals: AddedBy) -> Tensor:
    """Return the negative's estimate alone, [B, C, h, w]. Pre: guidance plans the negative only."""
    return average_side(_evaluate(point, guidance, diffusion, residuals), NEGATIVE, point.x)


def evaluate_sides(
    point: Point, guidance: Guidance, diffusion: DiffusionModel, residuals: AddedBy
) -> dict[int, Tensor]:
    """Return the estimate of each side that takes part, [B, C, h, w], not put together."""
    outputs = _evaluate(point, guidance, diffusion, residuals)
    return {side: average_side(outputs, side, point.x) for side in guidance.sides()}


def _evaluate(point: Point, guidance: Guidance, diffusion: DiffusionModel, residuals: AddedBy) -> Outputs:
    outputs: list[tuple[Batch, Tensor]] = []
    for batch in point.batches(guidance):
        inputs = model_inputs(point, batch, diffusion)
        added = _chain_residuals(batch, residuals)
        extra = kept_input(point.x, point.whole, batch, point.subject.facts)
        x_in = inputs.x_in if extra is None else torch.cat((inputs.x_in, extra.to(inputs.x_in)), 1)
        output = diffusion.predict(x_in, inputs.timesteps, inputs.context, inputs.adm, added)
        x = batch.stack(point.x)
        outputs.append((batch, point.parametrization.calculate_denoised(point.sigma, output.to(x), x)))
    return outputs


def kept_input(x: Tensor, whole: KeptPart | None, batch: Batch, facts: ModelFacts) -> Tensor | None:
    """Stack what models for inpainting, and for editing, take beside a latent x; None for other models."""
    if not (facts.is_inpainting or facts.is_editing):
        return None

    def units(latent: Tensor) -> Tensor:
        return to_model_units(latent, facts)

    def extra(options: Mapping[str, Any]) -> Tensor:
        if facts.is_inpainting:
            return inpainting_input(x, options, whole, units)
        sees_own_units = facts.process is not None and facts.process.name == "model_sampling_edm"
        return editing_input(x, options, units if sees_own_units else None)

    return torch.cat([entry.region.crop(extra(entry.options)) for entry in batch.entries])


class ChainedResiduals(Sequence[Tensor]):
    """The sum of several controls' residuals, element by element, first control first.

    Nothing is read before it is asked for, so that a model waits for each element only where it uses it.
    """

    def __init__(self, parts: Sequence[Residuals]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        total = self._parts[0][index]
        for part in self._parts[1:]:
            total = total + part[index]
        return total


def feature_name(batch_index: int, block_number: int) -> str:
    """Return the name of the list that holds what an adapter adds to a block, for a batch."""
    return f"{batch_index}.{block_number}"


def feature_blocks(given: Mapping[str, Residuals], batch_index: int) -> list[int]:
    """List the blocks that an application adds features to, for a batch."""
    names = (name.split(".") for name in given if "." in name)
    return [int(number) for index, number in names if int(index) == batch_index]


def chain(parts: Sequence[Residuals], features: Sequence[Mapping[int, Tensor]]) -> Residuals | None:
    """Put together what several applications add, None if it is nothing; features: by block."""
    residuals: Residuals = ChainedResiduals(parts) if len(parts) > 1 else (*parts, ())[0]
    if not features:
        return residuals if parts else None
    total: dict[int, Tensor] = {}
    for given in features:
        for number, feature in given.items():
            total[number] = total[number] + feature if number in total else feature
    return WithFeatures(residuals, total)


def _chain_residuals(batch: Batch, residuals: AddedBy) -> Residuals | None:
    parts: list[Residuals] = []
    features: list[Mapping[int, Tensor]] = []
    for application in batch.controls:
        given = residuals[application] if application < len(residuals) else None
        if given is None:
            continue
        if str(batch.index) in given:
            parts.append(given[str(batch.index)])
        if blocks := feature_blocks(given, batch.index):
            features.append({number: given[feature_name(batch.index, number)][0] for number in blocks})
    return chain(parts, features)
