"""Resolve the target size of a scaling node, where 0 means "keep the ratio"."""

from __future__ import annotations


def resolve_size(width: int, height: int, shape_wh: tuple[int, int], least: int) -> tuple[int, int]:
    """Return (width, height) with a 0 replaced from the ratio of `shape_wh`; at least `least` if it was 0.

    Not for both 0, which means "unchanged".
    """
    from_width, from_height = shape_wh
    if width == 0:
        return max(least, round(from_width * height / from_height)), height
    if height == 0:
        return width, max(least, round(from_height * width / from_width))
    return width, height
