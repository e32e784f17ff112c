"""Write the prompts of an evaluation, with what must be seen in the pictures.

Objects are those that training never shows on the background they are asked for (`world.is_held_out`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from comfyserverless.training.scenery.world import COLORS, PLACES, SHAPES, SIZES, is_held_out

SizePx = tuple[int, int]
USUAL_PX: SizePx = (128, 128)
OTHER_SIZES_PX: tuple[SizePx, ...] = ((64, 64), (96, 96), (160, 160), (192, 192), (192, 128), (128, 192))
_LEADS = ("", "", "", "a picture of ", "an image of ", "a drawing of ")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that is asked for."""

    color: str
    shape: str


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt. place, size: words, or "" when not asked; of two objects, place says where the first one is.

    size_px: (width, height) of the canvas.
    """

    category: str
    text: str
    background: str
    wanted: tuple[Wanted, ...]
    seed: int
    size_px: SizePx = USUAL_PX
    place: str = ""
    size: str = ""


class _Author:
    """Draws what is asked: every shape and every combination as often as any other."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._left: dict[str, list[tuple[str, str]]] = {shape: [] for shape in SHAPES}
        self._shapes: list[str] = []

    def choose(self, *options: str) -> str:
        return options[int(self.rng.integers(len(options)))]

    def seed(self) -> int:
        return int(self.rng.integers(2**32))

    def held_out(self) -> tuple[Wanted, str]:
        """Return the next object and its background."""
        if not self._shapes:
            self._shapes = [str(shape) for shape in self.rng.permutation(list(SHAPES))]
        shape = self._shapes.pop()
        left = self._left[shape]
        if not left:
            pairs = [(c, b) for c in COLORS for b in COLORS if c != b and is_held_out(shape, c, b)]
            left += [pairs[index] for index in self.rng.permutation(len(pairs))]
        color, background = left.pop()
        return Wanted(color, shape), background

    def held_out_beside(self, first: Wanted, background: str) -> Wanted:
        """Return another object of another shape and colour for the same background."""
        others = [
            Wanted(color, shape)
            for shape in SHAPES
            for color in COLORS
            if is_held_out(shape, color, background)
            and first.shape != shape
            and color not in (first.color, background)
        ]
        return others[int(self.rng.integers(len(others)))]


def single_questions(count: int, seed: int) -> list[Question]:
    """Return `count` questions for one object at the usual size, two in three with a word for its size."""
    author = _Author(seed)
    sizes = [*SIZES, *SIZES, ""]
    return [_single(author, "single", size=sizes[at % len(sizes)]) for at in range(count)]


def more_questions(count: int, seed: int) -> list[Question]:
    """Return `count` questions of each other category: pairs, counts, empty pictures, places, other sizes."""
    author = _Author(seed)
    kinds: tuple[Callable[[_Author], Question], ...] = (_pair, _count, _empty, _placed)
    questions = [kind(author) for kind in kinds for _ in range(count)]
    for size_px in OTHER_SIZES_PX:
        category = f"{size_px[0]}x{size_px[1]}"
        questions += [_single(author, category, size_px=size_px) for _ in range(count)]
    return questions


def _single(author: _Author, category: str, size: str = "", size_px: SizePx = USUAL_PX) -> Question:
    wanted, background = author.held_out()
    text = _on(author, _with_article(size, wanted.color, wanted.shape), background)
    return Question(category, text, background, (wanted,), author.seed(), size_px, size=size)


def _placed(author: _Author) -> Question:
    wanted, background = author.held_out()
    place = author.choose(*PLACES)
    preposition = "at" if place.startswith(("top", "bottom")) else "on"
    noun = _with_article("", wanted.color, wanted.shape)
    text = f"{noun} {preposition} the {place} on {_with_article('', background, 'background')}"
    return Question("place", text, background, (wanted,), author.seed(), place=place)


def _pair(author: _Author) -> Question:
    first, background = author.held_out()
    second = author.held_out_beside(first, background)
    a, b = (_with_article("", each.color, each.shape) for each in (first, second))
    text, place = (
        (f"{a} and {b}", ""),
        (f"{a} next to {b}", ""),
        (f"{a} to the left of {b}", "left"),
        (f"{a} on the left and {b} on the right", "left"),
        (f"{a} above {b}", "top"),
        (f"{a} at the top and {b} at the bottom", "top"),
    )[int(author.rng.integers(6))]
    return Question(
        "pair", _on(author, text, background), background, (first, second), author.seed(), place=place
    )


def _count(author: _Author) -> Question:
    wanted, background = author.held_out()
    number = author.choose("two", "three")
    plural = "es" if wanted.shape.endswith("s") else "s"
    text = _on(author, f"{number} {wanted.color} {wanted.shape}{plural}", background)
    return Question("count", text, background, (wanted,) * (2 if number == "two" else 3), author.seed())


def _empty(author: _Author) -> Question:
    background = author.choose(*COLORS)
    text = author.choose(
        f"{background} background", f"a plain {background} background", f"an empty {background} background"
    )
    return Question("empty", text, background, (), author.seed())


def _on(author: _Author, subject: str, background: str) -> str:
    ground = f"{background} background"
    whole = _with_article("", background, "background")
    lead = author.choose(*_LEADS)
    return author.choose(
        f"{lead}{subject} on {whole}", f"{lead}{subject} on {whole}", f"{lead}{subject} on {whole}",
        f"{lead}{subject}, {ground}", f"on {whole}, {subject}", f"{ground}, {subject}",
    )  # fmt: skip


def _with_article(*words: str) -> str:
    noun = " ".join(word for word in words if word)
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"
