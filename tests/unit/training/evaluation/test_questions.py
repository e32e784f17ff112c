"""Check that questions ask for what training never shows, in words that it teaches."""

from __future__ import annotations

import re
from collections import Counter

from comfyserverless.training.evaluation.questions import (
    OTHER_SIZES_PX,
    Question,
    more_questions,
    single_questions,
)
from comfyserverless.training.scenery.captions import words
from comfyserverless.training.scenery.world import PLACES, SHAPES, is_held_out

SINGLE = single_questions(60, seed=0)
OTHERS = more_questions(12, seed=0)


def of(category: str) -> list[Question]:
    return [question for question in OTHERS if question.category == category]


def test_every_object_is_one_that_training_never_shows_there() -> None:
    for question in [*SINGLE, *OTHERS]:
        for wanted in question.wanted:
            assert wanted.color != question.background
            assert is_held_out(wanted.shape, wanted.color, question.background), question


def test_every_word_is_taught() -> None:
    known = set(words())
    for question in [*SINGLE, *OTHERS]:
        assert set(re.findall(r"\w+|[,.]", question.text)) <= known, question.text


def test_questions_name_what_they_ask_for() -> None:
    for question in [*SINGLE, *OTHERS]:
        assert f"{question.background} background" in question.text
        for wanted in question.wanted:
            assert f"{wanted.color} {wanted.shape}" in question.text
        assert question.size in question.text


def test_shapes_come_equally_often_and_no_single_object_twice() -> None:
    counts = Counter(question.wanted[0].shape for question in SINGLE)
    assert set(counts) == set(SHAPES)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({(question.wanted, question.background) for question in SINGLE}) == len(SINGLE)


def test_same_seed_asks_the_same_and_another_seed_something_else() -> None:
    assert single_questions(60, seed=0) == SINGLE
    assert single_questions(60, seed=1) != SINGLE


def test_pairs_differ_in_shape_and_color() -> None:
    assert len(of("pair")) == 12
    for question in of("pair"):
        first, second = question.wanted
        assert first.shape != second.shape
        assert first.color != second.color


def test_other_categories_ask_for_counts_places_and_nothing() -> None:
    assert {len(question.wanted) for question in of("count")} == {2, 3}
    assert all(question.place in PLACES for question in of("place"))
    assert all(question.wanted == () for question in of("empty"))
    assert {question.size_px for question in OTHERS} == {(128, 128), *OTHER_SIZES_PX}
