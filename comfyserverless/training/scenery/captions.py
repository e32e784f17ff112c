"""Put a scene into words: one of many wordings, sometimes with words that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from comfyserverless.training.scenery.world import COLORS, SHAPES, Item, Scene

UNKNOWN = "~"
"""Stands in a caption for a word that the model does not know."""

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "circle": ("disc", "ball"),
    "square": ("box",),
    "ring": ("donut",),
    "cross": ("plus",),
    "moon": ("crescent",),
    "gray": ("grey",),
    "large": ("big", "huge"),
    "small": ("tiny", "little"),
}
_LEADS = ("a picture of ", "an image of ", "a drawing of ", "a photo of ", "a simple ", "an icon of ")
_TAILS = (".", ", flat", ", simple", ", flat design", ", vector art")
_ENGLISH = (
    "a an and the of with in on at to no by only nothing but one two three 2 3 next beside above over below "
    "under top bottom left right center middle side row background gradient striped small medium large plain "
    "empty solid picture image drawing photo simple icon flat design vector art against , ."
)
_SAME_PLURAL = ("cross", "box", "plus")


def words() -> tuple[str, ...]:
    """Return every word and mark that captions are made of."""
    singular = [*SHAPES, *(alias for name in SHAPES for alias in _ALIASES.get(name, ()))]
    others = [alias for aliases in _ALIASES.values() for alias in aliases]
    known = [*_ENGLISH.split(), *COLORS, *singular, *map(_plural, singular), *others]
    return tuple(dict.fromkeys(known))


def _plural(word: str) -> str:
    return word + ("es" if word in _SAME_PLURAL else "s")


class _Writer:
    """The choices of one caption."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def choose(self, *options: str) -> str:
        return options[int(self._rng.integers(len(options)))]

    def below(self, end: int) -> int:
        return int(self._rng.integers(end))

    def word(self, word: str) -> str:
        """Return a word, or sometimes another one for the same."""
        return self.choose(*_ALIASES[word]) if word in _ALIASES and self.chance(0.12) else word

    def with_article(self, noun: str) -> str:
        article = "an" if noun[0] in "aeio" else self.choose("a", "a", "a", "one")
        return f"{article} {noun}"

    def noun(self, item: Item, size: str = "", is_plural: bool = False) -> str:
        """Return adjectives and name of an object."""
        shape = self.word(item.shape)
        adjectives = [size] if size else []
        if item.is_striped and self.chance(0.92):
            adjectives.append("striped")
        if not self.chance(0.03):
            adjectives.append(self.word(item.color))
        if len(adjectives) > 1 and self.chance(0.15):
            self._rng.shuffle(adjectives)
        return " ".join([*adjectives, _plural(shape) if is_plural else shape])


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """Return a wording of the scene, in lower case; see UNKNOWN."""
    writer = _Writer(rng)
    style = "gradient " if scene.is_gradient and writer.chance(0.9) else ""
    back = f"{writer.word(scene.background)} {style}background"
    if scene.kind == "empty":
        text = _empty(writer, back)
    else:
        main, where = _subject(writer, scene)
        text = _sentence(writer, scene, back, main, where)
        if writer.chance(0.12):
            text = writer.choose(*_LEADS) + text
    if writer.chance(0.12):
        text += writer.choose(*_TAILS)
    return _with_unknown_words(writer, text) if writer.chance(0.25) else text


def _empty(writer: _Writer, back: str) -> str:
    whole = writer.with_article(back)
    return writer.choose(
        back, back, whole, whole, f"plain {back}", f"a plain {back}", f"an empty {back}", f"only {whole}",
        f"solid {back}", f"{whole} with nothing",
    )  # fmt: skip


def _subject(writer: _Writer, scene: Scene) -> tuple[str, str]:
    """Return what is in the picture, and where."""
    if scene.kind == "single":
        return _single(writer, scene)
    if scene.kind == "pair":
        return _pair(writer, scene), ""
    count = len(scene.items)
    number = writer.choose(("two", "three")[count - 2], ("two", "three")[count - 2], str(count))
    main = f"{number} {writer.noun(scene.items[0], is_plural=True)}"
    return main + (writer.choose(" in a row", " side by side") if writer.chance(0.15) else ""), ""


def _single(writer: _Writer, scene: Scene) -> tuple[str, str]:
    says_size = writer.chance(0.3 if scene.size == "medium" else 0.75)
    main = writer.noun(scene.items[0], writer.word(scene.size) if says_size else "")
    place = scene.place
    if not place and writer.chance(0.15):
        place = writer.choose("center", "middle")
    where = ""
    if place and not writer.chance(0.05):
        at = "at" if place.startswith(("top", "bottom")) else "in" if place in ("center", "middle") else "on"
        where = f" {at} the {place}" + writer.choose("", "", " side" if at == "on" else "", " of the picture")
    return (main if writer.chance(0.2) else writer.with_article(main)), where


def _pair(writer: _Writer, scene: Scene) -> str:
    a, b = (writer.with_article(writer.noun(item)) for item in scene.items)
    if scene.is_vertical:
        return writer.choose(
            f"{a} above {b}", f"{a} over {b}", f"{a} on top of {b}", f"{b} below {a}", f"{b} under {a}",
            f"{a} at the top and {b} at the bottom",
        )  # fmt: skip
    return writer.choose(
        f"{a} next to {b}", f"{a} and {b}", f"{a} beside {b}", f"{a} to the left of {b}",
        f"{b} to the right of {a}", f"{a} on the left and {b} on the right", f"{a} and {b}",
    )  # fmt: skip


def _sentence(writer: _Writer, scene: Scene, back: str, main: str, where: str) -> str:
    if scene.background == "white" and writer.chance(0.3):
        return main + where
    whole = writer.with_article(back)
    ground = writer.choose(
        f" on {whole}", f" on {whole}", f" on {whole}", f" on {whole}", f", {back}", f", {back}",
        f" on {back.removesuffix(' background')}", f" with {whole}", f" against {whole}",
    )  # fmt: skip
    comma = "," if where else ""
    return writer.choose(
        *[f"{main}{where}{ground}"] * 4, *[f"{main}{ground}{comma}{where}"] * 2, f"{whole} with {main}{where}",
        f"on {whole}, {main}{where}", f"{back}, {main}{where}",
    )  # fmt: skip


def _with_unknown_words(writer: _Writer, text: str) -> str:
    parts = text.split(" ")
    end = len(parts)
    at = (0, end, end, writer.below(end + 1))[writer.below(4)]
    parts[at:at] = [UNKNOWN] * (1 + writer.below(8))
    return " ".join(parts)
