"""Choose levels of noise by schedules, and cut, turn and extend them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from comfyserverless.core.errors import PromptError
from comfyserverless.core.samplers import SCHEDULER_NAMES
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import choice, number, socket, switch, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_model, take_tensor

_MODULE = "comfy_extras.nodes_custom_sampler"
_NUMBER = re.compile(r"[-+]?(?:\d*\.*\d+)")
_MAX_LEVELS = 100_000


def _of_model(function: str, *settings: str) -> Lowering:
    """Return a lowering that gives the model and these settings to a function."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        given = {name: inputs[name] for name in settings}
        return NodeResult((ctx.emit(function, model=take_model(inputs), **given).out("sigmas"),))

    return lower


def _free(shape: str, *settings: str) -> Lowering:
    """Return a lowering that makes levels of a shape without a model."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        return _emit_shape(ctx, shape, None, **{name: inputs[name] for name in settings})

    return lower


def _emit_shape(ctx: LoweringContext, shape: str, sigmas: Value, **settings: Value) -> NodeResult:
    made = ctx.emit("sigmas.shape", shape=shape, sigmas=sigmas, settings=settings)
    return NodeResult((made.out("sigmas"),))


async def _align(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    settings = {"kind": inputs["model_type"], "steps": inputs["steps"], "denoise": inputs["denoise"]}
    return _emit_shape(ctx, "align_your_steps", None, **settings)


async def _split(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_split(ctx, inputs, inputs["step"])


async def _split_by_strength(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Cut so that the second part walks the last share `denoise` of the steps."""
    (count,) = await shape_of(ctx, take_tensor(inputs, "sigmas", "SIGMAS"))
    steps = max(count - 1, 0)
    return _emit_split(ctx, inputs, steps - round(steps * inputs["denoise"]))


def _emit_split(ctx: LoweringContext, inputs: Inputs, step: int) -> NodeResult:
    parts = ctx.emit("sigmas.split", sigmas=take_tensor(inputs, "sigmas", "SIGMAS"), step=step)
    return NodeResult((parts.out("high"), parts.out("low")))


async def _flip(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_shape(ctx, "flip", take_tensor(inputs, "sigmas", "SIGMAS"))


async def _set_first(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    sigmas = take_tensor(inputs, "sigmas", "SIGMAS")
    return NodeResult((ctx.emit("sigmas.set", sigmas=sigmas, first=inputs["sigma"]).out("sigmas"),))


async def _extend(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_shape(
        ctx,
        "extend",
        take_tensor(inputs, "sigmas", "SIGMAS"),
        steps=inputs["steps"],
        start=inputs["start_at_sigma"],
        end=inputs["end_at_sigma"],
        spacing=inputs["spacing"],
    )


async def _write_down(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Take all numbers of a text."""
    written = [float(found) for found in _NUMBER.findall(inputs["sigmas"]) if found.count(".") < 2]
    if len(written) > _MAX_LEVELS or not all(math.isfinite(each) for each in written):
        raise PromptError(f"sigmas has {len(written)} levels; allowed: up to {_MAX_LEVELS} finite numbers")
    return NodeResult((ctx.emit("sigmas.set", sigmas=written, first=None).out("sigmas"),))


async def _at_percent(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    found = ctx.emit(
        "sigmas.at_percent",
        model=take_model(inputs),
        percent=inputs["sampling_percent"],
        is_actual=inputs["return_actual_sigma"],
    )
    return NodeResult((await ctx.result(found.out("sigma")),))


def _node(
    name: str, kind: str, lower: Lowering, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec] = ()
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        category=f"sampling/custom_sampling/{kind}",
        python_module=_MODULE,
        lower=lower,
        inputs=inputs,
        outputs=outputs or (OutputSpec("SIGMAS"),),
    )


def _free_number(name: str, default: float, high: float, low: float = 0.0, step: float = 0.01) -> InputSpec:
    return number(name, default, low, high, step=step, round=False)


_MODEL = socket("model", "MODEL")
_SIGMAS = socket("sigmas", "SIGMAS")
_STEPS = whole("steps", 20, 1, 10000)
_SCHEDULERS = "schedulers"
_ENDS = (_free_number("sigma_max", 14.614642, 5000.0), _free_number("sigma_min", 0.0291675, 5000.0))
_DENOISE = number("denoise", 1.0, 0.0, 1.0, step=0.01)
_HALVES = (OutputSpec("SIGMAS", "high_sigmas"), OutputSpec("SIGMAS", "low_sigmas"))

NODES = (
    _node(
        "BasicScheduler",
        _SCHEDULERS,
        _of_model("sigmas.schedule", "scheduler", "steps", "denoise"),
        (_MODEL, choice("scheduler", SCHEDULER_NAMES), _STEPS, _DENOISE),
    ),
    _node(
        "KarrasScheduler",
        _SCHEDULERS,
        _free("karras", "steps", "sigma_max", "sigma_min", "rho"),
        (_STEPS, *_ENDS, _free_number("rho", 7.0, 100.0)),
    ),
    _node(
        "ExponentialScheduler",
        _SCHEDULERS,
        _free("exponential", "steps", "sigma_max", "sigma_min"),
        (_STEPS, *_ENDS),
    ),
    _node(
        "PolyexponentialScheduler",
        _SCHEDULERS,
        _free("polyexponential", "steps", "sigma_max", "sigma_min", "rho"),
        (_STEPS, *_ENDS, _free_number("rho", 1.0, 100.0)),
    ),
    _node(
        "LaplaceScheduler",
        _SCHEDULERS,
        _free("laplace", "steps", "sigma_max", "sigma_min", "mu", "beta"),
        (
            _STEPS,
            *_ENDS,
            _free_number("mu", 0.0, 10.0, -10.0, 0.1),
            _free_number("beta", 0.5, 10.0, 0.0, 0.1),
        ),
    ),
    _node(
        "VPScheduler",
        _SCHEDULERS,
        _free("vp", "steps", "beta_d", "beta_min", "eps_s"),
        (
            _STEPS,
            _free_number("beta_d", 19.9, 5000.0),
            _free_number("beta_min", 0.1, 5000.0),
            _free_number("eps_s", 0.001, 1.0, step=0.0001),
        ),
    ),
    _node(
        "BetaSamplingScheduler",
        _SCHEDULERS,
        _of_model("sigmas.beta", "steps", "alpha", "beta"),
        (_MODEL, _STEPS, _free_number("alpha", 0.6, 50.0), _free_number("beta", 0.6, 50.0)),
    ),
    _node(
        "SDTurboScheduler",
        _SCHEDULERS,
        _of_model("sigmas.turbo", "steps", "denoise"),
        (_MODEL, whole("steps", 1, 1, 10), number("denoise", 1.0, 0, 1.0, step=0.01)),
    ),
    NodeDeclaration(
        name="AlignYourStepsScheduler",
        category=f"sampling/custom_sampling/{_SCHEDULERS}",
        python_module="comfy_extras.nodes_align_your_steps",
        lower=_align,
        inputs=(choice("model_type", ("SD1", "SDXL", "SVD")), whole("steps", 10, 1, 10000), _DENOISE),
        outputs=(OutputSpec("SIGMAS"),),
    ),
    _node("SplitSigmas", "sigmas", _split, (_SIGMAS, whole("step", 0, 0, 10000)), _HALVES),
    _node("SplitSigmasDenoise", "sigmas", _split_by_strength, (_SIGMAS, _DENOISE), _HALVES),
    _node("FlipSigmas", "sigmas", _flip, (_SIGMAS,)),
    _node(
        "SetFirstSigma",
        "sigmas",
        _set_first,
        (_SIGMAS, _free_number("sigma", 136.0, 20000.0, step=0.001)),
    ),
    _node(
        "ExtendIntermediateSigmas",
        "sigmas",
        _extend,
        (
            _SIGMAS,
            whole("steps", 2, 1, 100),
            _free_number("start_at_sigma", -1.0, 20000.0, -1.0),
            _free_number("end_at_sigma", 12.0, 20000.0),
            choice("spacing", ("linear", "cosine", "sine")),
        ),
    ),
    _node(
        "SamplingPercentToSigma",
        "sigmas",
        _at_percent,
        (
            _MODEL,
            number("sampling_percent", 0.0, 0.0, 1.0, step=0.0001),
            switch("return_actual_sigma", False),
        ),
        (OutputSpec("FLOAT", "sigma_value"),),
    ),
    NodeDeclaration(
        name="ManualSigmas",
        category="_for_testing/custom_sampling",
        python_module=_MODULE,
        experimental=True,
        lower=_write_down,
        inputs=(InputSpec("sigmas", "STRING", {"default": "1, 0.5", "multiline": False}),),
        outputs=(OutputSpec("SIGMAS"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
