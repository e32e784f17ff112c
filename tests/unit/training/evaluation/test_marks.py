"""Check what counts as right."""

from __future__ import annotations

from comfyserverless.training.evaluation.judge import Reading, Thing
from comfyserverless.training.evaluation.marks import Marks, mark
from comfyserverless.training.evaluation.questions import Question, Wanted

STAR, MOON = Wanted("red", "star"), Wanted("cyan", "moon")


def thing(color: str, shape: str, x: float = 0.5, y: float = 0.5, radius: float = 33.0) -> Thing:
    return Thing(color, shape, x, y, radius, radius**2, False, 0.95)


def asked(*wanted: Wanted, place: str = "", size: str = "") -> Question:
    return Question("any", "", "blue", wanted, 0, place=place, size=size)


def test_picture_as_asked_is_right() -> None:
    marks = mark(asked(STAR, size="medium"), Reading("blue", (thing("red", "star"),)))
    assert marks == Marks(True, True, True, True, None, True)
    assert marks.is_right


def test_each_fault_shows_in_its_own_column() -> None:
    question = asked(STAR)
    assert not mark(question, Reading("green", (thing("red", "star"),))).background
    assert not mark(question, Reading("blue", (thing("pink", "star"),))).color
    assert not mark(question, Reading("blue", (thing("red", ""),))).shape
    assert not mark(question, Reading("blue", (thing("red", "star"), thing("red", "star")))).count
    assert not mark(asked(STAR, size="small"), Reading("blue", (thing("red", "star"),))).size


def test_missing_object_is_wrong_in_color_and_shape() -> None:
    marks = mark(asked(STAR, size="small"), Reading("blue", ()))
    assert (marks.color, marks.shape, marks.count, marks.size) == (False, False, False, False)


def test_wrong_color_leaves_the_shape_of_a_single_object_right() -> None:
    assert mark(asked(STAR), Reading("blue", (thing("pink", "star"),))).shape


def test_swapped_colors_of_a_pair_are_wrong_shapes() -> None:
    marks = mark(asked(STAR, MOON), Reading("blue", (thing("cyan", "star"), thing("red", "moon"))))
    assert marks.color
    assert not marks.shape


def test_empty_picture_is_right_without_objects_only() -> None:
    assert mark(asked(), Reading("blue", ())).is_right
    assert not mark(asked(), Reading("blue", (thing("red", "star"),))).is_right


def test_place_is_seen_from_the_middle() -> None:
    question = asked(STAR, place="top left")
    assert mark(question, Reading("blue", (thing("red", "star", 0.25, 0.3),))).place
    assert not mark(question, Reading("blue", (thing("red", "star", 0.25, 0.7),))).place
    assert not mark(asked(STAR, place="left"), Reading("blue", (thing("red", "star", 0.25, 0.9),))).place


def test_place_of_the_first_of_two_is_seen_from_the_second() -> None:
    question = asked(STAR, MOON, place="left")
    left, right = thing("red", "star", 0.3), thing("cyan", "moon", 0.7)
    assert mark(question, Reading("blue", (right, left))).place
    assert not mark(question, Reading("blue", (thing("cyan", "moon", 0.3), thing("red", "star", 0.7)))).place
    assert not mark(question, Reading("blue", (left,))).place
