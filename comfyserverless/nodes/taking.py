"""Take input values in a lowering and check their kind.

Validation lets a literal stand where a link should be (as ComfyUI does), so the kind is only certain here.
All functions raise PromptError naming the input and the type it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import (
    ClipRef,
    ControlNetRef,
    ModelRef,
    Output,
    TensorRef,
    UpscaleRef,
    VaeRef,
    Value,
)
from comfyserverless.graph.lowering import LoweringContext

Inputs = Mapping[str, Value]
Conditioning = list[list[Any]]

_Handle = TypeVar("_Handle", ModelRef, ClipRef, VaeRef, ControlNetRef, UpscaleRef)
_TYPE_NAMES: Mapping[type, str] = {
    ModelRef: "MODEL",
    ClipRef: "CLIP",
    VaeRef: "VAE",
    ControlNetRef: "CONTROL_NET",
    UpscaleRef: "UPSCALE_MODEL",
}


def take_model(inputs: Inputs, name: str = "model") -> ModelRef:
    """Return a diffusion model handle."""
    return _take_handle(inputs, name, ModelRef)


def take_clip(inputs: Inputs, name: str = "clip") -> ClipRef:
    """Return a text encoder handle."""
    return _take_handle(inputs, name, ClipRef)


def take_vae(inputs: Inputs, name: str = "vae") -> VaeRef:
    """Return an autoencoder handle."""
    return _take_handle(inputs, name, VaeRef)


def take_control_net(inputs: Inputs, name: str = "control_net") -> ControlNetRef:
    """Return a ControlNet handle."""
    return _take_handle(inputs, name, ControlNetRef)


def take_upscaler(inputs: Inputs, name: str = "upscale_model") -> UpscaleRef:
    """Return the handle of an upscaler."""
    return _take_handle(inputs, name, UpscaleRef)


def take_tensor(inputs: Inputs, name: str, kind: str = "IMAGE") -> TensorRef | Output:
    """Return a tensor, or the symbol of one that is still being made; kind is for the message only."""
    value = inputs.get(name)
    if isinstance(value, TensorRef | Output):
        return value
    raise _wrong(name, kind, value)


def take_latent(inputs: Inputs, name: str) -> Mapping[str, Value]:
    """Return a LATENT: a dict with `samples`; do not change it."""
    value = inputs.get(name)
    if isinstance(value, Mapping) and isinstance(value.get("samples"), TensorRef | Output):
        return value
    raise _wrong(name, "LATENT", value)


def take_conditioning(inputs: Inputs, name: str) -> Conditioning:
    """Return a CONDITIONING: a list of [tensor, options]; do not change it."""
    value = inputs.get(name)
    if isinstance(value, list) and all(_is_entry(entry) for entry in value):
        if any(not isinstance(entry[1].get("control") or [], list) for entry in value):
            raise PromptError(
                f"Input {name!r} has a control of a custom node's own: the workers have no code for it"
            )
        return value
    raise _wrong(name, "CONDITIONING", value)


async def shape_of(ctx: LoweringContext, tensor: TensorRef | Output) -> tuple[int, ...]:
    """Return a tensor's shape; waits for the invocation that makes it."""
    known = await ctx.result(tensor) if isinstance(tensor, Output) else tensor
    if isinstance(known, TensorRef):
        return known.shape
    raise PromptError(f"A tensor was expected, but got {type(known).__name__}")


def _take_handle(inputs: Inputs, name: str, kind: type[_Handle]) -> _Handle:
    value = inputs.get(name)
    if isinstance(value, kind):
        return value
    raise _wrong(name, _TYPE_NAMES[kind], value)


def _is_entry(entry: Value) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], TensorRef | Output)
        and isinstance(entry[1], dict)
    )


def _wrong(name: str, kind: str, value: Value) -> PromptError:
    got = "nothing" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)
    return PromptError(f"Input {name!r} takes a {kind}, but got {got}")
