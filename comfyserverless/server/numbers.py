"""Read numbers that clients write into addresses."""

from __future__ import annotations


def whole_number(text: str) -> int | None:
    """Return the integer that a text shows; None if it shows none, or one longer than Python reads."""
    try:
        return int(text)
    except ValueError:
        return None
