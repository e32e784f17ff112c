"""Sample with noise and levels that a pack has made, and evaluate the model for samplers that a pack drives."""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output, TensorRef, Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.custom_sampling.running import UNUSED_PORTS
from comfyserverless.nodes.sampling import GIVEN_NOISE, guide_by, run_controls, run_sampler
from comfyserverless.nodes.specs import number, seed, socket
from comfyserverless.nodes.taking import (
    Conditioning,
    Inputs,
    take_conditioning,
    take_latent,
    take_model,
    take_tensor,
)

_BOTH_SIDES = 2.0
_ONE_SIDE = 1.0
_STATE_SAMPLER = "euler"
"""Asks for an evaluation at exactly the latent and level that its state holds."""


async def _sample(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent = {**take_latent(inputs, "latent"), GIVEN_NOISE: take_tensor(inputs, "noise", "NOISE")}
    guided = guide_by(
        ctx,
        take_model(inputs),
        take_conditioning(inputs, "positive"),
        take_conditioning(inputs, "negative"),
        inputs["cfg"],
        inputs.get("guide"),
    )
    end, has_steps = await run_sampler(
        ctx,
        guided,
        latent,
        seed=inputs["seed"],
        sampler=inputs["sampler"],
        options=inputs["options"],
        sigmas=take_tensor(inputs, "sigmas", "SIGMAS"),
        add_noise=True,
        keeps_estimate=True,
        **UNUSED_PORTS,
    )
    return NodeResult((end.out("samples"), end.out("estimate") if has_steps else None))


async def _evaluate(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Evaluate up to three sides at one latent and level; the ControlNets that act there run beside it.

    guided_by: the scale to put them together by, with the model's patches; None: give each side.
    """
    positive, negative, middle = (_side(inputs, name) for name in ("positive", "negative", "middle"))
    guide = None if middle is None else {"mode": "dual", "middle": middle, "scale": 1.0}
    is_guided = inputs.get("guided_by") is not None
    cfg = inputs["guided_by"] if is_guided else _ONE_SIDE if negative is None else _BOTH_SIDES
    guided = guide_by(ctx, take_model(inputs), positive or [], negative or [], cfg, guide)
    state = _state(take_tensor(inputs, "x", "LATENT"), inputs["sigmas"], inputs["step"])
    residuals: list[Value] = []
    if guided.applications:
        residuals = run_controls(ctx, guided, state, range(len(guided.applications)))
    evaluated = ctx.emit(
        "denoise.evaluate", state=state, residuals=residuals, guided=is_guided, **guided.ports()
    )
    return NodeResult(tuple(evaluated.out(name) for name in ("positive", "negative", "middle")))


def _side(inputs: Inputs, name: str) -> Conditioning | None:
    return None if inputs.get(name) is None else take_conditioning(inputs, name)


def _state(x: TensorRef | Output, sigmas: Value, step: Value) -> Mapping[str, Value]:
    """Return the state of a walk that stands at a level. Raises PromptError for what is no level of it."""
    if not isinstance(sigmas, list) or not isinstance(step, int) or not 0 <= step < len(sigmas):
        raise PromptError(f"step {step!r} is no level of a walk")
    return {"sampler": _STATE_SAMPLER, "walk": {"x": x, "sigmas": sigmas, "step": step}}


def _optional(name: str, kind: str) -> InputSpec:
    return InputSpec(name, kind, section="optional")


_SIDES = (socket("positive", "CONDITIONING"), socket("negative", "CONDITIONING"))

NODES = (
    NodeDeclaration(
        name="HostSample",
        lower=_sample,
        inputs=(
            socket("model", "MODEL"),
            *_SIDES,
            number("cfg", 8.0, 0.0, 100.0),
            _optional("guide", "GUIDE"),
            socket("noise", "NOISE"),
            seed("seed"),
            socket("sampler", "STRING"),
            socket("options", "OPTIONS"),
            socket("sigmas", "SIGMAS"),
            socket("latent", "LATENT"),
        ),
        outputs=(OutputSpec("TENSOR"), OutputSpec("TENSOR")),
    ),
    NodeDeclaration(
        name="HostEvaluate",
        lower=_evaluate,
        inputs=(
            socket("model", "MODEL"),
            socket("x", "LATENT"),
            socket("sigmas", "FLOATS"),
            socket("step", "INT"),
            _optional("guided_by", "FLOAT"),
            *(_optional(name, "CONDITIONING") for name in ("positive", "negative", "middle")),
        ),
        outputs=tuple(OutputSpec("TENSOR") for _ in range(3)),
    ),
)
"""The declarations of this module."""
