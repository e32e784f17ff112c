"""Map captions to the rows of a small embedding table, and the table to CLIP's vocabulary.

Only the tokens of the captions' words get rows of their own; every other token shares row 0, which stays
zero, so that words that the model has not learnt mean nothing to it.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comfyserverless.models.text.bpe import END_ID, START_ID, clip_ids
from comfyserverless.training.scenery.captions import UNKNOWN, words

Ids = NDArray[np.int64]

TOKENS = 77
_UNKNOWN_ROW = 0


@lru_cache(maxsize=1)
def token_ids() -> tuple[int, ...]:
    """Return CLIP's ids of rows 1, 2, ... of the table, ascending."""
    return tuple(sorted({START_ID, END_ID, *(token for word in words() for token in clip_ids(word))}))


def row_count() -> int:
    """Return the number of rows of the table, row 0 included."""
    return len(token_ids()) + 1


@lru_cache(maxsize=1)
def _row_of() -> dict[int, int]:
    return {token: row + 1 for row, token in enumerate(token_ids())}


def start_row() -> int:
    """Return the row of the mark that begins a text."""
    return _row_of()[START_ID]


def end_row() -> int:
    """Return the row of the mark that ends a text and fills its rest."""
    return _row_of()[END_ID]


@lru_cache(maxsize=100_000)
def _piece_rows(piece: str) -> tuple[int, ...]:
    return tuple(_row_of().get(token, _UNKNOWN_ROW) for token in clip_ids(piece))


def rows(text: str) -> Ids:
    """Return the rows [77] int64 of a caption between its marks, cut or filled to length."""
    found = [start_row()]
    for piece in re.findall(rf"{UNKNOWN}|[^{UNKNOWN}\s]+", text):
        found += (_UNKNOWN_ROW,) if piece == UNKNOWN else _piece_rows(piece)
    found = found[: TOKENS - 1]
    return np.array(found + [end_row()] * (TOKENS - len(found)), np.int64)
