"""Compare what was read in a picture with what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from comfyserverless.training.evaluation.judge import Reading, Thing
from comfyserverless.training.evaluation.questions import USUAL_PX, Question, Wanted
from comfyserverless.training.scenery.world import PLACES

_ASIDE = 0.06
"""How far from the middle an object must be to be on a side, 0..1 of the picture."""
_LARGEST_SMALL = 27.3
_LARGEST_MEDIUM = 40.8
"""Radii in units, halfway (as ratios) between the sizes that training shows."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What is right about one picture; None where it was not asked. count: of the objects."""

    background: bool
    color: bool | None
    shape: bool | None
    count: bool
    place: bool | None = None
    size: bool | None = None

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return False not in (self.background, self.color, self.shape, self.count, self.place, self.size)


def mark(question: Question, reading: Reading) -> Marks:
    """Mark a picture. Of more objects than were asked for, the largest count.

    Of several objects, `shape` is right when each shape has its own colour, too.
    """
    things = reading.things[: len(question.wanted)]
    has_background = reading.background == question.background
    has_count = len(reading.things) == len(question.wanted)
    if not question.wanted:
        return Marks(has_background, None, None, has_count)
    wanted = question.wanted
    is_single = len(wanted) == 1
    return Marks(
        background=has_background,
        color=sorted(thing.color for thing in things) == sorted(each.color for each in wanted),
        shape=[thing.shape for thing in things] == [wanted[0].shape] if is_single else _same(wanted, things),
        count=has_count,
        place=_is_in_place(question, things) if question.place else None,
        size=_size_word(things) == question.size if question.size and question.size_px == USUAL_PX else None,
    )


def _same(wanted: tuple[Wanted, ...], things: tuple[Thing, ...]) -> bool:
    asked = sorted((each.color, each.shape) for each in wanted)
    return asked == sorted((thing.color, thing.shape) for thing in things)


def _size_word(things: tuple[Thing, ...]) -> str:
    if not things:
        return ""
    radius = things[0].radius
    return "small" if radius < _LARGEST_SMALL else "medium" if radius < _LARGEST_MEDIUM else "large"


def _is_in_place(question: Question, things: tuple[Thing, ...]) -> bool:
    """Tell whether the object is where it was asked for: from the middle, or from the second object."""
    right, down = PLACES[question.place]
    if len(things) < len(question.wanted):
        return False
    first, *others = sorted(things, key=lambda thing: thing.color != question.wanted[0].color)
    from_x, from_y = (others[0].x, others[0].y) if others else (0.5, 0.5)
    is_aside = (first.x - from_x) * right >= abs(right) * _ASIDE and (first.y - from_y) * down >= abs(
        down
    ) * _ASIDE
    drift_x, drift_y = abs(first.x - from_x) * (not right), abs(first.y - from_y) * (not down)
    return is_aside and max(drift_x, drift_y) < 4 * _ASIDE
