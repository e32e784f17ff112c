"""Take plain values in a lowering: texts, numbers and truth values, also such as are still being made."""

from __future__ import annotations

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output, Value
from comfyserverless.graph.lowering import LoweringContext
from comfyserverless.nodes.taking import Inputs

MAX_TEXT_CHARS = 4 * 2**20
"""The longest text that a node makes: texts are kept in the control process."""


async def resolved(ctx: LoweringContext, value: Value) -> Value:
    """Return a value, waiting for the invocation that makes it if it is a symbol."""
    return await ctx.result(value) if isinstance(value, Output) else value


async def take_text(ctx: LoweringContext, inputs: Inputs, name: str) -> str:
    """Return a text. Raises PromptError if the input is anything else."""
    value = await resolved(ctx, inputs.get(name))
    if isinstance(value, str):
        return value
    raise PromptError(f"Input {name!r} takes a STRING, but got {_kind(value)}")


async def take_number(ctx: LoweringContext, inputs: Inputs, name: str) -> int | float:
    """Return a number or a truth value. Raises PromptError if the input is anything else."""
    value = await resolved(ctx, inputs.get(name))
    if isinstance(value, int | float):
        return value
    raise PromptError(f"Input {name!r} takes a number, but got {_kind(value)}")


async def take_whole(ctx: LoweringContext, inputs: Inputs, name: str, default: int | None = None) -> int:
    """Return a whole number, the default if nothing was given. Raises PromptError if it is anything else."""
    if name not in inputs and default is not None:
        return default
    value = await take_number(ctx, inputs, name)
    if isinstance(value, int):
        return int(value)
    raise PromptError(f"Input {name!r} takes an INT, but got {value}")


def check_length(chars: int) -> None:
    """Raise PromptError if a text of so many characters is too long to be made."""
    if chars > MAX_TEXT_CHARS:
        raise PromptError(f"The text would have {chars} characters; a node makes at most {MAX_TEXT_CHARS}")


def _kind(value: Value) -> str:
    return "nothing" if value is None else type(value).__name__
