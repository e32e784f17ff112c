"""Draw a contact sheet: every picture with its prompt and what the judge read in it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from comfyserverless.training.evaluation.judge import Reading
from comfyserverless.training.evaluation.report import Answer

_COLUMNS = 8
_GAP_PX = 10
_LINE_PX = 12
_LINES = 7
_CHARS_PER_PX = 1 / 6.2
_INK, _RIGHT_INK, _WRONG_INK = "#222222", "#15803d", "#b91c1c"


def save_sheet(answers: Sequence[Answer], path: Path) -> None:
    """Write the sheet as PNG; the folder must exist."""
    side_px = max(max(answer.question.size_px) for answer in answers)
    width_px, height_px = side_px + _GAP_PX, side_px + _GAP_PX + _LINES * _LINE_PX
    rows = -(-len(answers) // _COLUMNS)
    sheet = Image.new("RGB", (min(_COLUMNS, len(answers)) * width_px, rows * height_px), "white")
    for index, answer in enumerate(answers):
        corner = (index % _COLUMNS * width_px + _GAP_PX // 2, index // _COLUMNS * height_px + _GAP_PX // 2)
        _paste(sheet, answer, corner, side_px)
    sheet.save(path, optimize=True)


def _paste(sheet: Image.Image, answer: Answer, corner: tuple[int, int], side_px: int) -> None:
    left, top = corner
    sheet.paste(Image.fromarray(answer.picture), corner)
    pen = ImageDraw.Draw(sheet)
    chars = int(side_px * _CHARS_PER_PX)
    asked = textwrap.wrap(answer.question.text, chars)
    read = textwrap.wrap(in_words(answer.reading, has_fits=True), chars)
    ink = _RIGHT_INK if answer.marks.is_right else _WRONG_INK
    for line, (text, fill) in enumerate([*((text, _INK) for text in asked), *((text, ink) for text in read)]):
        pen.text((left, top + side_px + 2 + line * _LINE_PX), text, fill=fill)


def in_words(reading: Reading, *, has_fits: bool = False) -> str:
    """Return what was read as words, largest object first, "?" for what has no name; with fits if asked for."""
    things = [
        f"{'hollow ' if thing.is_hollow else ''}{thing.color or '?'} {thing.shape or '?'}"
        + (f" {thing.fit:.2f}" if has_fits else "")
        for thing in reading.things
    ]
    return f"{', '.join(things) or 'nothing'} on {reading.background or '?'}"
