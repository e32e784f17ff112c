"""Decide whether an output may feed an input, by their declared types."""

from __future__ import annotations

from typing import Any

ANY_TYPE = "*"
MATCH_TYPE = "COMFY_MATCHTYPE_V3"
_WILDCARDS = (ANY_TYPE, MATCH_TYPE)


def is_compatible(source: Any, target: Any) -> bool:
    """Tell whether a link from an output of type `source` may end at an input of type `target`.

    Uses the `!=` operator of the type objects: packs override it in their wildcard types, so equality,
    hashing or normalised text would break them. Texts with commas are alternatives.
    """
    if not (source != target):  # noqa: SIM202  see above: `==` is not what packs override
        return True
    if isinstance(source, list | tuple):
        return bool(target == "COMBO" or target == ANY_TYPE)
    if any(isinstance(kind, str) and kind in _WILDCARDS for kind in (source, target)):
        return True
    if isinstance(source, str) and isinstance(target, str):
        return _share_alternative(source, target)
    return False


def _share_alternative(source: str, target: str) -> bool:
    sources = {part.strip() for part in source.split(",")}
    targets = {part.strip() for part in target.split(",")}
    return ANY_TYPE in sources or ANY_TYPE in targets or not sources.isdisjoint(targets)
