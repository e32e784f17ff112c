"""Lower the samplers: one invocation per denoising step, so that a run can be shared, moved and resumed.

A step is one invocation, whatever its number of model calls, unless something runs beside these: then each
evaluation of the model is an invocation of its own. What runs beside it are the ControlNets that are active at
its noise level, and the negative branch if guidance is split; what they make arrives through callback ports
while both run. Whether it is split never depends on who is idle, because both branches in one batch do not give
the bits of each alone: it is a setting, or measured once for a model and size and kept (`_is_split`).

All are emitted at once, but where a sampler finds the number of its steps on the way: there each step tells
whether one more follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.samplers import SAMPLER_NAMES, SCHEDULER_NAMES
from comfyserverless.core.values import ModelRef, Value
from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import Emitted, LoweringContext, NodeResult, StepProgress
from comfyserverless.nodes.controlnet import distinct_applications, spread_to_negative
from comfyserverless.nodes.patching.handles import may_split
from comfyserverless.nodes.specs import combo, number, seed, socket, whole
from comfyserverless.nodes.taking import (
    Conditioning,
    Inputs,
    take_conditioning,
    take_latent,
    take_model,
)

_BOTH, _POSITIVE, _NEGATIVE = "both", "positive", "negative"

_Walk = Callable[[LoweringContext, "Guided", Mapping[str, Any], Value], Awaitable[Value]]
_STEPS_PER_TURN = 64

_MOST_FOR_SPLITTING = 1.05
"""What both branches apart may take, over both in one batch: splitting costs little then where nobody idles."""

GIVEN_NOISE = "given_noise"
"""Part of a LATENT: the noise to start from, where it is not to be drawn from the seed."""

#: The parts of a LATENT that sampling reads.
_LATENT_PORT_KEYS = ("samples", "batch_index", "noise_mask", GIVEN_NOISE)


@dataclass(frozen=True, slots=True)
class Guided:
    """What every model call of one sampler node shares.

    guide: how more than two sides are put together, or None; is_split: the branches of guidance are calls
    apart.
    """

    model: ModelRef
    positive: Conditioning
    negative: Conditioning
    cfg: float
    guide: Mapping[str, Value] | None
    applications: list[dict[str, Value]]
    is_split: bool = False

    def ports(self) -> dict[str, Value]:
        """Return the input ports that all sampling functions but the last have in common."""
        return {
            "model": self.model,
            "positive": self.positive,
            "negative": self.negative,
            "cfg": self.cfg,
            "guide": self.guide,
            "applications": self.applications,
        }


@dataclass(frozen=True, slots=True)
class _Schedule:
    """How noise goes down; the fields are ports of sample.begin. None for a step is ComfyUI's "not limited"."""

    seed: int
    steps: int
    sampler: str
    scheduler: str
    denoise: float = 1.0
    start_step: int | None = None
    last_step: int | None = None
    force_full_denoise: bool = False
    add_noise: bool = True

    def ports(self) -> dict[str, Value]:
        """Return the fields by port name, and the ports that only custom sampling uses."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "sigmas": None, "options": {}, "keeps_estimate": False}


async def _ksampler(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    schedule = _Schedule(
        inputs["seed"], inputs["steps"], inputs["sampler_name"], inputs["scheduler"], inputs["denoise"]
    )
    return await _sample(ctx, inputs, schedule)


async def _ksampler_advanced(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    schedule = _Schedule(
        inputs["noise_seed"],
        inputs["steps"],
        inputs["sampler_name"],
        inputs["scheduler"],
        start_step=inputs["start_at_step"],
        last_step=inputs["end_at_step"],
        force_full_denoise=inputs["return_with_leftover_noise"] != "enable",
        add_noise=inputs["add_noise"] != "disable",
    )
    return await _sample(ctx, inputs, schedule)


async def _sample(ctx: LoweringContext, inputs: Inputs, schedule: _Schedule) -> NodeResult:
    latent = take_latent(inputs, "latent_image")
    positive, negative = take_conditioning(inputs, "positive"), take_conditioning(inputs, "negative")
    guided = guide_by(ctx, take_model(inputs), positive, negative, inputs["cfg"])
    end, _ = await run_sampler(ctx, guided, latent, **schedule.ports())
    return NodeResult(({**latent, "samples": end.out("samples")},))


def guide_by(
    ctx: LoweringContext,
    model: ModelRef,
    positive: Conditioning,
    negative: Conditioning,
    cfg: float,
    guide: Mapping[str, Value] | None = None,
) -> Guided:
    """Return what guides a sampler, with the ControlNets of all sides; guide: a middle side and its scale."""
    negative = spread_to_negative(positive, negative)
    middle: Conditioning = []
    if guide is not None:
        middle = spread_to_negative(positive, guide["middle"])
        guide = {**guide, "middle": middle}
    applications = distinct_applications(positive, [*negative, *middle])
    return Guided(model, positive, negative, cfg, guide, applications)


async def run_sampler(
    ctx: LoweringContext, guided: Guided, latent: Mapping[str, Value], **schedule: Value
) -> tuple[Emitted, bool]:
    """Emit a whole walk over noise levels; return its sample.end, and whether there is anything to walk.

    schedule: the ports of sample.begin that say how noise goes down.
    """
    begin = ctx.emit(
        "sample.begin",
        latent={key: latent[key] for key in _LATENT_PORT_KEYS if key in latent},
        **guided.ports(),
        **schedule,
    )
    plan = await ctx.result(begin.out("plan"))
    guided = replace(guided, is_split=await _is_split(ctx, guided, plan, begin.out("state")))
    walk = _choose_walk(plan, guided)
    state = await walk(ctx, guided, plan, begin.out("state"))
    return ctx.emit("sample.end", model=guided.model, state=state), bool(plan["evaluations"])


async def _is_split(ctx: LoweringContext, guided: Guided, plan: Mapping[str, Any], state: Value) -> bool:
    """Tell whether the branches are calls apart: as the server is set, or as was chosen once for such a latent.

    What is not chosen yet is measured, with the prompt that asks first.
    """
    if guided.guide is not None or not may_split(guided.model):
        return False
    if ctx.split_guidance != "auto":
        return ctx.split_guidance == "on"
    first = next(iter(plan["evaluations"]), None)
    if first is None or first["branches"] is None:
        return False
    file = guided.model.file
    key = f"{file.path} {file.size_bytes} {file.mtime_ns} {plan['shape']}"
    chosen = ctx.choice(key)
    if chosen is None:
        weigh = ctx.emit("denoise.weigh", state=state, **guided.ports())
        batched_s, branch_s = [await ctx.result(weigh.out(port)) for port in ("batched_s", "branch_s")]
        chosen = ctx.choose(key, 2 * branch_s <= _MOST_FOR_SPLITTING * batched_s)
    return chosen


def _choose_walk(plan: Mapping[str, Any], guided: Guided) -> _Walk:
    if plan["is_dynamic"]:
        return _walk_dynamic
    has_branches = guided.is_split and any(each["branches"] is not None for each in plan["evaluations"])
    return _walk_evaluations if guided.applications or has_branches else _walk_steps


async def _walk_steps(ctx: LoweringContext, guided: Guided, plan: Mapping[str, Any], state: Value) -> Value:
    """Emit one denoise.step per step; return the last state."""
    for step in range(plan["steps"]):
        state = _emit_step(ctx, guided, StepProgress(step + 1, plan["maximum"]), state).out("state")
        await _let_others_in(step)
    return state


async def _walk_evaluations(
    ctx: LoweringContext, guided: Guided, plan: Mapping[str, Any], state: Value
) -> Value:
    """Emit, per evaluation, what runs beside it and a denoise.step; return the last state."""
    for index, evaluation in enumerate(plan["evaluations"]):
        state = _emit_evaluation(ctx, guided, evaluation, plan["maximum"], state).out("state")
        await _let_others_in(index)
    return state


async def _walk_dynamic(ctx: LoweringContext, guided: Guided, plan: Mapping[str, Any], state: Value) -> Value:
    """Emit one denoise.step after the other, until one tells that nothing is upcoming; return the last state.

    Progress counts to the steps that were asked for, and stays there if the walk takes more.
    """
    maximum, upcoming = plan["maximum"], next(iter(plan["evaluations"]), None)
    while upcoming is not None:
        if guided.applications or guided.is_split:
            emitted = _emit_evaluation(ctx, guided, upcoming, maximum, state)
        else:
            emitted = _emit_step(ctx, guided, _progress(upcoming, maximum), state)
        state, upcoming = emitted.out("state"), await ctx.result(emitted.out("upcoming"))
        ctx.keep_only(emitted)
    return state


def _progress(evaluation: Mapping[str, Any], maximum: int) -> StepProgress:
    return StepProgress(min(evaluation["step"] + 1, maximum), maximum)


def _emit_step(ctx: LoweringContext, guided: Guided, progress: StepProgress, state: Value) -> Emitted:
    """Emit one whole step."""
    return ctx.emit(
        "denoise.step",
        progress=progress,
        state=state,
        residuals=[],
        uncond=None,
        single_evaluation=False,
        preview=ctx.preview,
        **guided.ports(),
    )


def _emit_evaluation(
    ctx: LoweringContext, guided: Guided, evaluation: Mapping[str, Any], maximum: int, state: Value
) -> Emitted:
    """Emit one evaluation of a step, and what runs beside it."""
    branch, active, uncond = _BOTH, evaluation["controls"], None
    if guided.is_split and evaluation["branches"] is not None:
        branch, (active, others) = _POSITIVE, evaluation["branches"]
        uncond = _emit_negative(ctx, guided, state, others).out("uncond")
    residuals = run_controls(ctx, guided, state, active, branch)
    ends_step = evaluation["last_of_step"]
    return ctx.emit(
        "denoise.step",
        progress=_progress(evaluation, maximum) if ends_step else None,
        state=state,
        residuals=residuals,
        uncond=uncond,
        single_evaluation=True,
        preview=ctx.preview if ends_step else None,
        **guided.ports(),
    )


async def _let_others_in(step: int) -> None:
    """Give way now and then: ten thousand steps are a second of emitting, and every request waits for it."""
    if step % _STEPS_PER_TURN == _STEPS_PER_TURN - 1:
        await asyncio.sleep(0)


def _emit_negative(ctx: LoweringContext, guided: Guided, state: Value, active: Sequence[int]) -> Emitted:
    """Emit the negative branch of an evaluation, and the ControlNets that are active in it."""
    residuals = run_controls(ctx, guided, state, active, _NEGATIVE)
    return ctx.emit("denoise.negative", state=state, residuals=residuals, **guided.ports())


def run_controls(
    ctx: LoweringContext, guided: Guided, state: Value, active: Sequence[int], branch: str = _BOTH
) -> list[Value]:
    """Emit the ControlNets that are active; return the residuals by application, None for the others."""
    if any(not 0 <= each < len(guided.applications) for each in active):
        raise InvariantError(f"sampling planned controls {active} of {len(guided.applications)}")
    return [
        _run_control(ctx, guided, state, index, branch) if index in active else None
        for index in range(len(guided.applications))
    ]


def _run_control(ctx: LoweringContext, guided: Guided, state: Value, index: int, branch: str) -> Value:
    control_net = guided.applications[index]["control_net"]
    ports = {"state": state, "application": index, "branch": branch, **guided.ports()}
    return ctx.emit("controlnet.run", control_net=control_net, **ports).out("residuals")


_STEPS = whole("steps", 20, 1, 10000)
_CFG = number("cfg", 8.0, 0.0, 100.0, step=0.1, round=0.01)
_SAMPLER = combo("sampler_name", SAMPLER_NAMES)
_SCHEDULER = combo("scheduler", SCHEDULER_NAMES)
_GUIDANCE = (
    socket("positive", "CONDITIONING"),
    socket("negative", "CONDITIONING"),
    socket("latent_image", "LATENT"),
)

NODES = (
    NodeDeclaration(
        name="KSampler",
        display_name="KSampler",
        category="sampling",
        lower=_ksampler,
        inputs=(
            socket("model", "MODEL"),
            seed("seed"),
            _STEPS,
            _CFG,
            _SAMPLER,
            _SCHEDULER,
            *_GUIDANCE,
            number("denoise", 1.0, 0.0, 1.0, step=0.01),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="KSamplerAdvanced",
        display_name="KSampler (Advanced)",
        category="sampling",
        lower=_ksampler_advanced,
        inputs=(
            socket("model", "MODEL"),
            combo("add_noise", ("enable", "disable")),
            seed("noise_seed"),
            _STEPS,
            _CFG,
            _SAMPLER,
            _SCHEDULER,
            *_GUIDANCE,
            whole("start_at_step", 0, 0, 10000),
            whole("end_at_step", 10000, 0, 10000),
            combo("return_with_leftover_noise", ("disable", "enable")),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
