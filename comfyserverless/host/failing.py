"""Tell of what the code of packs has raised: whatever it is, and however it behaves when it is asked."""

from __future__ import annotations

from comfyserverless.worker.failures import type_name

_MOST_CHARACTERS = 100_000


def words_of(error: BaseException) -> str:
    """Return the message of an exception, in characters that can be sent, and not more than a person reads."""
    try:
        words = str(error)
    except BaseException as exc:  # noqa: BLE001 - custom-node call: __str__ of a pack's exception
        words = f"(its message cannot be shown: {type(exc).__name__})"
    if len(words) > _MOST_CHARACTERS:
        words = f"{words[:_MOST_CHARACTERS]} ... ({len(words) - _MOST_CHARACTERS} more characters)"
    return words.encode("utf-8", "replace").decode()


def kind_of(error: BaseException) -> str:
    """Return the dotted name of an exception's class."""
    try:
        return type_name(error)
    except BaseException:  # noqa: BLE001 - custom-node call: __str__ of a pack's exception
        return type(error).__qualname__
