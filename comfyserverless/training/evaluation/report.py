"""Sum up an evaluation: rates by category, the bars, a table for people, one JSON object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from comfyserverless.training.evaluation.judge import Reading
from comfyserverless.training.evaluation.marks import Marks
from comfyserverless.training.evaluation.questions import Question
from comfyserverless.training.scenery.world import Picture

BARS: Mapping[str, float] = {"background": 0.95, "color": 0.97, "shape": 0.90}
"""Least share of right answers to the questions for single objects."""
MAIN_CATEGORY = "single"
_COLUMNS = ("background", "color", "shape", "count", "place", "size")


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, the picture that was drawn for it, what was read in it, and its marks."""

    question: Question
    picture: Picture
    reading: Reading
    marks: Marks


Rates = dict[str, float]


def rates(answers: Sequence[Answer]) -> Rates:
    """Return the share of right answers by column that was asked for; `all` is that of faultless pictures.

    `fit` is the mean overlap of the largest objects with drawn shapes, where the shape is right.
    """
    found: Rates = {}
    for column in _COLUMNS:
        given = [mark for answer in answers if (mark := getattr(answer.marks, column)) is not None]
        if given:
            found[column] = round(sum(given) / len(given), 4)
    found["all"] = round(sum(answer.marks.is_right for answer in answers) / len(answers), 4)
    fits = [answer.reading.things[0].fit for answer in answers if answer.marks.shape]
    if fits:
        found["fit"] = round(sum(fits) / len(fits), 4)
    return found


def by_category(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Sort answers by category, in order of appearance."""
    sorted_: dict[str, list[Answer]] = {}
    for answer in answers:
        sorted_.setdefault(answer.question.category, []).append(answer)
    return sorted_


def has_passed(main: Rates) -> bool:
    """Tell whether the rates of the main category reach the bars."""
    return all(main[column] >= bar for column, bar in BARS.items())


def table(answers: Sequence[Answer]) -> str:
    """Return the rates as text, one line for each category."""
    columns = (*_COLUMNS, "all", "fit")
    lines = [f"{'right':<10}{'prompts':>9}" + "".join(f"{column:>12}" for column in columns)]
    for category, group in by_category(answers).items():
        found = rates(group)
        cells = (f"{found[column]:>12.3f}" if column in found else f"{'-':>12}" for column in columns)
        lines.append(f"{category:<10}{len(group):>9}" + "".join(cells))
    lines.append(f"{'bar':<10}{'':>9}" + "".join(f"{BARS.get(c, ''):>12}" for c in columns))
    return "\n".join(lines)


def summary(answers: Sequence[Answer], checkpoint: str, seed: int) -> dict[str, object]:
    """Return the machine-readable form."""
    groups = by_category(answers)
    main = rates(groups[MAIN_CATEGORY])
    return {
        "evaluation": checkpoint,
        "seed": seed,
        "prompts": len(groups[MAIN_CATEGORY]),
        **main,
        "passed": has_passed(main),
        "categories": {name: {"prompts": len(group), **rates(group)} for name, group in groups.items()},
    }
