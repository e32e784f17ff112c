"""Find connected regions of a mask: plain run-length labelling, which needs nothing but arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Labels = NDArray[np.int32]


def label(mask: Mask, *, is_diagonal: bool) -> tuple[Labels, int]:
    """Number the regions of a mask [h, w] from 1; 0 is outside.

    is_diagonal: pixels that only touch at a corner belong together. Returns the labels [h, w] and their number.
    """
    runs = [_runs_of(row) for row in mask]
    firsts = np.cumsum([0, *(len(starts) for starts, _ in runs)])
    parents = list(range(int(firsts[-1])))
    reach = 1 if is_diagonal else 0
    for y in range(1, len(runs)):
        _join_rows(parents, runs[y - 1], runs[y], (int(firsts[y - 1]), int(firsts[y])), reach)
    roots = [_root(parents, run) for run in range(len(parents))]
    numbers = {root: number for number, root in enumerate(dict.fromkeys(roots), start=1)}
    labels = np.zeros(mask.shape, np.int32)
    for y, (starts, ends) in enumerate(runs):
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            labels[y, start:end] = numbers[roots[int(firsts[y]) + at]]
    return labels, len(numbers)


def _runs_of(row: Mask) -> tuple[list[int], list[int]]:
    edges = np.diff(np.concatenate([[0], row.astype(np.int8), [0]]))
    return np.flatnonzero(edges > 0).tolist(), np.flatnonzero(edges < 0).tolist()


def _join_rows(
    parents: list[int],
    above: tuple[list[int], list[int]],
    below: tuple[list[int], list[int]],
    firsts: tuple[int, int],
    reach: int,
) -> None:
    """Make runs of two neighbouring rows that touch one set."""
    up = down = 0
    while up < len(above[0]) and down < len(below[0]):
        if above[0][up] < below[1][down] + reach and below[0][down] < above[1][up] + reach:
            one, two = _root(parents, firsts[0] + up), _root(parents, firsts[1] + down)
            parents[max(one, two)] = min(one, two)
        if above[1][up] < below[1][down]:
            up += 1
        else:
            down += 1


def _root(parents: list[int], run: int) -> int:
    while parents[run] != run:
        parents[run] = parents[parents[run]]
        run = parents[run]
    return run


def grown(mask: Mask, times: int = 1) -> Mask:
    """Return the mask with every region one pixel wider on all eight sides, `times` times."""
    for _ in range(times):
        padded = np.pad(mask, 1)
        rows = padded[:-2] | padded[1:-1] | padded[2:]
        mask = rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]
    return mask


def shrunk(mask: Mask) -> Mask:
    """Return the mask without the pixels that touch its outside; beyond the picture counts as inside."""
    return ~grown(~mask)


def filled(mask: Mask) -> Mask:
    """Return the mask with its holes closed."""
    outside, _ = label(np.pad(~mask, 1, constant_values=True), is_diagonal=False)
    return (outside != outside[0, 0])[1:-1, 1:-1]
