"""Texts are changed as the page changes them when it sends them."""

from __future__ import annotations

import random
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.graph.workflows.wording import picked, with_tokens

NOW = datetime(2026, 3, 4, 15, 6, 7)  # noqa: DTZ001  (local time, as a user's clock shows it)


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("a {red|blue} b", {"a red b", "a blue b"}),
        ("{a|{b|c}d}", {"a", "bd", "cd"}),
        ("{|x}", {"", "x"}),
        ("a|b", {"a|b"}),
        (r"\{a\|b\}", {"{a|b}"}),
        ("a // rest\nb /* c */ d", {"a \nb  d"}),
    ],
)
def test_one_choice_of_each_group_is_taken(text: str, possible: set[str]) -> None:
    assert {picked(text, random.Random(seed)) for seed in range(60)} == possible


@given(st.text(alphabet="ab{}|\\/*\n"), st.integers(0, 99))
def test_any_text_has_an_end_and_one_seed_one_choice(text: str, seed: int) -> None:
    assert picked(text, random.Random(seed)) == picked(text, random.Random(seed))


@given(st.text(alphabet="ab ,.()"))
def test_text_without_groups_and_comments_stays(text: str) -> None:
    assert picked(text, random.Random(0)) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%date:d-dd-M-MM%", "4-04-3-03"),
        ("%date:yy.yyyy.yyy%", "26.2026.yyy"),
        ("%date:h_hh_m_mm_s_ss%", "15_15_6_06_7_07"),
        ("%date:yyyyMMddhhmmss%", "20260304150607"),
        ("%date:%%date%", "%date%"),
        ("%KSampler.seed%/x", "7/x"),
        ("%KSampler.name%", "a_b"),
        ("%KSampler.on%", "true"),
        ("%Nobody.seed% 100% %width%", "%Nobody.seed% 100% %width%"),
    ],
)
def test_tokens_of_file_names_are_replaced(pattern: str, text: str) -> None:
    values = {("KSampler", "seed"): 7, ("KSampler", "name"): "a/b", ("KSampler", "on"): True}
    assert with_tokens(pattern, lambda node, widget: values.get((node, widget)), NOW) == text


def test_dates_stay_tokens_without_a_clock() -> None:
    assert with_tokens("%date:yyyy%", lambda node, widget: None, None) == "%date:yyyy%"
