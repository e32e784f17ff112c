"""Check rates, bars, the table and the contact sheet on made-up answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from comfyserverless.training.evaluation.judge import Reading, Thing
from comfyserverless.training.evaluation.marks import Marks
from comfyserverless.training.evaluation.questions import Question, Wanted
from comfyserverless.training.evaluation.report import Answer, has_passed, rates, summary, table
from comfyserverless.training.evaluation.sheet import in_words, save_sheet

RIGHT = Marks(True, True, True, True)
READING = Reading("blue", (Thing("red", "", 0.5, 0.5, 30, 900, True, 0.5),))


def answer(marks: Marks, category: str = "single") -> Answer:
    question = Question(category, "a red star on a blue background", "blue", (Wanted("red", "star"),), 0)
    return Answer(question, np.zeros((128, 128, 3), np.uint8), READING, marks)


def test_rates_count_only_what_was_asked() -> None:
    found = rates([answer(RIGHT), answer(Marks(True, False, None, True, place=True))])
    assert found == {
        "background": 1, "color": 0.5, "shape": 1, "count": 1, "place": 1, "all": 0.5, "fit": 0.5,
    }  # fmt: skip


def test_one_shape_in_eleven_may_be_wrong_and_two_in_eleven_not() -> None:
    wrong = answer(Marks(True, True, False, True))
    assert has_passed(rates([answer(RIGHT)] * 10 + [wrong]))
    assert not has_passed(rates([answer(RIGHT)] * 9 + [wrong] * 2))


def test_only_single_objects_decide() -> None:
    figures = summary([answer(RIGHT), answer(Marks(False, False, False, False), "pair")], "x.safetensors", 3)
    assert figures["passed"] is True
    assert (figures["prompts"], figures["seed"], figures["shape"]) == (1, 3, 1)
    assert json.loads(json.dumps(figures))["categories"]["pair"]["background"] == 0


def test_table_has_a_line_for_each_category_and_the_bars() -> None:
    lines = table([answer(RIGHT), answer(RIGHT, "64x64")]).splitlines()
    assert [line.split()[0] for line in lines] == ["right", "single", "64x64", "bar"]
    assert len({len(line) for line in lines}) == 1


def test_reading_is_told_in_words_with_question_marks_for_what_has_no_name() -> None:
    assert in_words(READING) == "hollow red ? on blue"
    assert in_words(READING, has_fits=True) == "hollow red ? 0.50 on blue"
    assert in_words(Reading("", ())) == "nothing on ?"


def test_sheet_shows_every_picture(tmp_path: Path) -> None:
    save_sheet([answer(RIGHT)] * 9, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 8 * 128
        assert sheet.height > 2 * 128
