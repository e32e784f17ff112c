"""Name models for people, by what their keys say: the names of the files that a handle is made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_SEPARATOR = "@"
_LONGEST_NAME = 64
_LONGEST_LABEL = 160
_CUT = "…"


def weight_label(names: Sequence[str], digest: str) -> str:
    """Return a key of weights that begins with the names of their files, and ends with what makes it unique."""
    label = "+".join(shortened(name, _LONGEST_NAME) for name in names)
    return f"{shortened(label, _LONGEST_LABEL)}{_SEPARATOR}{digest}"


@lru_cache(maxsize=4096)
def model_name(weights: tuple[str, ...]) -> str:
    """Return the names of the files behind some keys of weights; empty if there are none."""
    names = dict.fromkeys(key.rpartition(_SEPARATOR)[0] or key for key in weights)
    return shortened(", ".join(names), _LONGEST_LABEL)


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters, all of which have a form in UTF-8."""
    if len(text) > longest:
        text = text[: longest - 1] + _CUT
    return text.encode("utf-8", "replace").decode()
