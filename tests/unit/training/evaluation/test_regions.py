"""Check the labelling of regions on masks small enough to see."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comfyserverless.training.evaluation.regions import Mask, filled, grown, label, shrunk


def mask_of(*rows: str) -> Mask:
    return np.array([[mark == "#" for mark in row] for row in rows])


def test_pixels_that_touch_at_a_corner_belong_together_only_diagonally() -> None:
    steps = mask_of("#..", ".#.", "..#")
    assert label(steps, is_diagonal=True)[1] == 1
    assert label(steps, is_diagonal=False)[1] == 3


def test_arms_that_meet_in_the_last_row_are_one_region() -> None:
    labels, count = label(mask_of("#.#.#", "#.#.#", "#####"), is_diagonal=False)
    assert count == 1
    assert set(labels.ravel().tolist()) == {0, 1}


def test_closed_outline_is_filled_and_an_open_one_is_not() -> None:
    assert filled(mask_of("###", "#.#", "###")).all()
    assert not filled(mask_of("###", "#.#", "#.#"))[1, 1]


def test_growing_and_shrinking_move_the_edge_by_one_pixel() -> None:
    dot = mask_of(".....", ".....", "..#..", ".....", ".....")
    assert grown(dot).sum() == 9
    assert (shrunk(grown(dot)) == dot).all()
    assert (grown(dot, 2)).all()


@settings(max_examples=60, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))), st.booleans())
def test_neighbours_in_the_mask_have_the_same_label(mask: Mask, is_diagonal: bool) -> None:
    labels, count = label(mask, is_diagonal=is_diagonal)
    assert ((labels > 0) == mask).all()
    assert set(np.unique(labels[mask]).tolist()) == set(range(1, count + 1))
    pairs = [(labels[:, 1:], labels[:, :-1]), (labels[1:], labels[:-1])]
    if is_diagonal:
        pairs += [(labels[1:, 1:], labels[:-1, :-1]), (labels[1:, :-1], labels[:-1, 1:])]
    for one, two in pairs:
        both = (one > 0) & (two > 0)
        assert (one[both] == two[both]).all()
