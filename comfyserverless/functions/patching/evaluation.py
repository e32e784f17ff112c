"""Evaluate a guided denoiser with patches: the points at which ComfyUI calls them, in its order.

From the outside in: wrappers of the whole prediction; wrappers of the model calls for all conditionings; for
each batch of them model_function_wrapper, wrappers of the model call, and the network with its own patches;
then the functions before guidance, the function in place of guidance, and the functions after it. Levels are
given to patches as [B], one per item, as ComfyUI's samplers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.guided import PROMPT_TYPE, AddedBy, Point, adm_of, kept_input, prompt_type
from comfyserverless.functions.patching.options import MEMORY, SCRATCH
from comfyserverless.functions.patching.residuals import PlannedResiduals
from comfyserverless.functions.patching.subject import Subject
from comfyserverless.functions.patching.view import ModelView
from comfyserverless.models.families.base import DiffusionModel
from comfyserverless.models.patching.calling import Executor, call, wrappers_of
from comfyserverless.sampling.guidance import (
    LISTED,
    MIDDLE,
    NEGATIVE,
    POSITIVE,
    Batch,
    Estimate,
    Guidance,
    Sides,
    average_side,
    guide_by_scale,
    plan_sides,
    put_together,
)

Conds = Sequence[Mapping[str, Any]]
"""One side's conditionings as patches see them: options, and `cross_attn`."""

_OLD_CFG_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class Walk:
    """What patches may know of the walk: its levels, and what they kept from earlier evaluations (changed)."""

    sigmas: Sequence[float]
    memory: dict[str, Any]


class PatchedEvaluation:
    """One evaluation of a patched model at the point where a sampler's walk stands."""

    def __init__(
        self, point: Point, guidance: Guidance, diffusion: DiffusionModel, residuals: AddedBy, walk: Walk
    ) -> None:
        self._point = point
        self._guidance = guidance
        self._diffusion = diffusion
        self._residuals = PlannedResiduals(point.batches(guidance) if len(residuals) else (), residuals)
        self._view = ModelView(point.subject, self)
        self._options = _options_of(point.subject, walk)
        self._negative: Tensor | None = None
        self._uncond: Tensor | None = None

    def estimate(self, negative: Tensor | None = None) -> Estimate:
        """Return the estimate of the clean latent; negative: that of the negative, if it is made elsewhere."""
        self._negative = negative
        wrappers = wrappers_of("predict_noise", self._options["transformer_options"])
        guider = SimpleNamespace(
            cfg=self._guidance.cfg, model_options=self._options, inner_model=self._view, conds=self._by_name()
        )
        executor = Executor("PREDICT_NOISE", self._predict, guider, wrappers)
        denoised: Tensor = executor(self._point.x, self._levels(self._point.x), self._options, None)
        return Estimate(denoised, self._uncond)

    def sides(self) -> dict[int, Tensor]:
        """Return the estimate of each side that takes part, not put together."""
        x = self._point.x
        outputs = self.calc_cond_batch(self._conds(), x, self._levels(x), self._options)
        evaluated = self._guidance.sides()
        return {
            side: out
            for side, out in zip(LISTED[self._guidance.mode], outputs, strict=True)
            if side in evaluated
        }

    def negative(self) -> Tensor:
        """Return the negative's estimate alone. Pre: the guidance plans the negative only."""
        x = self._point.x
        outputs = self.calc_cond_batch(self._conds(), x, self._levels(x), self._options)
        return outputs[LISTED["cfg"].index(NEGATIVE)]

    def _predict(
        self, x: Tensor, timestep: Tensor, model_options: dict[str, Any] | None = None, seed: int | None = None
    ) -> Tensor:
        options = self._options if model_options is None else model_options
        guidance, conds = self._guidance, self._conds()
        outputs = self._all_conds(conds, x, timestep, options)
        sides = LISTED[guidance.mode]
        negative_at = sides.index(NEGATIVE)
        if self._negative is not None:
            outputs[negative_at] = self._negative
        seen = _Seen(self._view, options, x, timestep)
        if guidance.mode == "cfg":
            outputs = seen.before_guidance(conds, outputs, guidance.cfg)
        takes_part = guidance.uses_negative
        self._uncond = outputs[negative_at] if takes_part else None
        by_side = dict(zip(sides, outputs, strict=False))
        guide = _Guide(seen, dict(zip(sides, conds, strict=True)), guidance)
        middle = by_side.get(MIDDLE, by_side[POSITIVE])
        denoised = put_together(guidance, by_side[POSITIVE], by_side[NEGATIVE], middle, guide.of(by_side))
        if guidance.mode == "perp_neg":
            return guide.after(denoised, POSITIVE, NEGATIVE, by_side)
        return denoised

    def _all_conds(
        self, conds: Sequence[Conds | None], x: Tensor, timestep: Tensor, options: dict[str, Any]
    ) -> list[Tensor]:
        function = options.get("sampler_calc_cond_batch_function")
        if function is None:
            return self.calc_cond_batch(conds, x, timestep, options)
        arguments = {
            "conds": conds,
            "input": x,
            "sigma": timestep,
            "model": self._view,
            "model_options": options,
        }
        return list(call("sampler_calc_cond_batch_function", function, arguments))

    def calc_cond_batch(
        self, conds: Sequence[Conds | None], x: Tensor, timestep: Tensor, options: dict[str, Any]
    ) -> list[Tensor]:
        """Return the estimate of each side, zeros for sides that are None."""
        wrappers = wrappers_of("calc_cond_batch", options.get("transformer_options", {}))
        executor = Executor("CALC_COND_BATCH", self._calc_cond_batch, None, wrappers)
        outputs: list[Tensor] = executor(self._view, conds, x, timestep, options)
        return list(outputs)

    def _calc_cond_batch(
        self, model: Any, conds: Sequence[Conds | None], x: Tensor, timestep: Tensor, options: dict[str, Any]
    ) -> list[Tensor]:
        sources = {
            side: [[cond["cross_attn"], cond] for cond in given] if given is not None else []
            for side, given in enumerate(conds)
        }
        listed = [side for side, given in enumerate(conds) if given is not None]
        sides = Sides(sources, listed, self._guidance.applications)
        batches = plan_sides(sides, float(timestep.reshape(-1)[0]), self._point.parametrization, x.shape[-2:])
        outputs = [(batch, self._run(batch, x, timestep, options)) for batch in batches]
        return [
            torch.zeros_like(x) if given is None else average_side(outputs, side, x)
            for side, given in enumerate(conds)
        ]

    def _run(self, batch: Batch, x: Tensor, timestep: Tensor, options: dict[str, Any]) -> Tensor:
        """Return the estimate for the entries of a batch, stacked."""
        count, sides = len(batch.entries), [entry.side for entry in batch.entries]
        stacked, levels = batch.stack(x), timestep.repeat(count)
        inner = {
            **options.get("transformer_options", {}),
            "cond_or_uncond": sides,
            "sigmas": timestep,
            "uuids": [entry.options.get("uuid") for entry in batch.entries],
        }
        c: dict[str, Any] = {"c_crossattn": batch.context(x.shape[0]), "transformer_options": inner}
        extra = {
            "y": adm_of(batch, x, self._diffusion),
            "c_concat": kept_input(x, self._point.whole, batch, self._point.subject.facts),
            "control": self._residuals.of(batch),
        }
        c |= {name: value for name, value in extra.items() if value is not None}
        wrapper = options.get("model_function_wrapper")
        if wrapper is None:
            return self.apply_model(stacked, levels, **c)
        arguments = {"input": stacked, "timestep": levels, "c": c, "cond_or_uncond": sides}
        output: Tensor = call("model_function_wrapper", wrapper, self.apply_model, arguments)
        return output

    def apply_model(self, x: Tensor, t: Tensor, **inputs: Any) -> Tensor:
        """Return the estimate for stacked entries at levels t, with the wrappers of this call."""
        wrappers = wrappers_of("apply_model", inputs.get("transformer_options") or {})
        executor = Executor("APPLY_MODEL", self._apply, self._view, wrappers)
        names = ("c_concat", "c_crossattn", "control", "transformer_options")
        given = [inputs.pop(name, None) for name in names]
        output: Tensor = executor(x, t, *given, **inputs)
        return output

    def _apply(
        self,
        x: Tensor,
        t: Tensor,
        c_concat: Tensor | None = None,
        c_crossattn: Tensor | None = None,
        control: Sequence[Tensor] | None = None,
        transformer_options: dict[str, Any] | None = None,
        **others: Any,
    ) -> Tensor:
        process = self._point.parametrization
        if c_crossattn is None:
            raise PromptError("a model patch runs the model without text: c_crossattn is missing")
        x_in = process.calculate_input(t, x)
        if c_concat is not None:
            x_in = torch.cat((x_in, c_concat.to(x_in)), 1)
        timesteps, options = process.timestep(t).to(x.device), dict(transformer_options or {})
        output = self._diffusion.predict(x_in, timesteps, c_crossattn, others.get("y"), control, options)
        return process.calculate_denoised(t, output.to(x), x)

    def _levels(self, x: Tensor) -> Tensor:
        return self._point.sigma.to(x).expand(x.shape[0])

    def _conds(self) -> list[Conds | None]:
        """Return each side's conditionings in the order of the mode, None for those that are not evaluated."""
        evaluated = self._guidance.sides()
        return [self._side(side) if side in evaluated else None for side in LISTED[self._guidance.mode]]

    def _side(self, side: int) -> Conds:
        guidance = self._guidance
        source = {POSITIVE: guidance.positive, NEGATIVE: guidance.negative, MIDDLE: guidance.middle}[side]
        kind = {PROMPT_TYPE: prompt_type(side)}
        return [
            {**kind, **options, "cross_attn": cond, "model_conds": {}, "uuid": (side, number)}
            for number, (cond, options) in enumerate(source)
        ]

    def _by_name(self) -> dict[str, Any]:
        return {"positive": self._side(POSITIVE), "negative": self._side(NEGATIVE)}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What all functions around guidance are shown."""

    view: ModelView
    options: dict[str, Any]
    x: Tensor
    timestep: Tensor

    def arguments(self, cond_scale: float, **others: Any) -> dict[str, Any]:
        return {
            "cond_scale": cond_scale,
            "timestep": self.timestep,
            "sigma": self.timestep,
            "input": self.x,
            "model": self.view,
            "model_options": self.options,
            **others,
        }

    def before_guidance(
        self, conds: Sequence[Conds | None], outputs: list[Tensor], scale: float
    ) -> list[Tensor]:
        for function in self.options.get("sampler_pre_cfg_function", ()):
            arguments = self.arguments(scale, conds=list(conds), conds_out=outputs)
            outputs = list(call("sampler_pre_cfg_function", function, arguments))
        return outputs


@dataclass(frozen=True, slots=True)
class _Guide:
    """Guidance between two sides, with the functions in its place and after it."""

    seen: _Seen
    conds: Mapping[int, Conds | None]
    guidance: Guidance

    def of(self, outputs: Mapping[int, Tensor]) -> Callable[[Tensor, Tensor, float], Tensor]:
        """Return what guides; the sides are told from the outputs."""

        def guide(towards: Tensor, away: Tensor, scale: float) -> Tensor:
            sides = [
                next(side for side, output in outputs.items() if output is given) for given in (towards, away)
            ]
            denoised = self._instead(towards, away, scale, [self.conds[side] for side in sides])
            return self.after(denoised, sides[0], sides[1], outputs, scale)

        return guide

    def _instead(self, cond: Tensor, uncond: Tensor, scale: float, conds: Sequence[Conds | None]) -> Tensor:
        function = self.seen.options.get("sampler_cfg_function")
        if function is None:
            return guide_by_scale(cond, uncond, scale)
        x = self.seen.x
        if len(signature(function).parameters) == _OLD_CFG_PARAMETERS:
            noise: Tensor = call("sampler_cfg_function", function, x - cond, x - uncond, scale)
            return x - noise
        arguments = self.seen.arguments(
            scale,
            cond=x - cond,
            uncond=x - uncond,
            cond_denoised=cond,
            uncond_denoised=uncond,
            input_cond=conds[0],
            input_uncond=conds[1],
        )
        noise = call("sampler_cfg_function", function, arguments)
        return x - noise

    def after(
        self,
        denoised: Tensor,
        positive: int,
        negative: int,
        outputs: Mapping[int, Tensor],
        scale: float | None = None,
    ) -> Tensor:
        """Return what the functions after guidance make of it."""
        others = {}
        if self.guidance.mode == "perp_neg":
            others = {"empty_cond": self.conds[MIDDLE], "empty_cond_denoised": outputs[MIDDLE]}
        for function in self.seen.options.get("sampler_post_cfg_function", ()):
            arguments = self.seen.arguments(
                self.guidance.cfg if scale is None else scale,
                denoised=denoised,
                cond=self.conds[positive],
                uncond=self.conds[negative],
                cond_denoised=outputs[positive],
                uncond_denoised=outputs[negative],
                **others,
            )
            denoised = call("sampler_post_cfg_function", function, arguments)
        return denoised


def _options_of(subject: Subject, walk: Walk) -> dict[str, Any]:
    """Return model_options for one evaluation; what patches change in them is gone afterwards."""
    options = dict(subject.options or {})
    inner = {key: _copied(value) for key, value in options.get("transformer_options", {}).items()}
    sample_sigmas = torch.tensor(walk.sigmas, dtype=torch.float32)
    shared = {"sample_sigmas": sample_sigmas, SCRATCH: {}, MEMORY: walk.memory}
    options["transformer_options"] = {**inner, **shared}
    options[MEMORY] = walk.memory
    return options


def _copied(value: Any) -> Any:
    """Copy dicts and lists, not what they hold."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value
