"""What nodes write on conditionings that they limit by mask and time, and combine."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.conditioning import MAX_ENTRIES
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import lower

MASK = tensor("m", 1, 48, 64)


def entry(name: str, **options: Any) -> list[list[Any]]:
    return [[tensor(name, 1, 77, 8), options]]


async def made(node: str, **inputs: Any) -> tuple[Any, ...]:
    given = {"strength": 0.5, "set_cond_area": "default", **inputs}
    return tuple((await lower(node, FakeContext(), **given)).outputs)


async def test_a_mask_and_a_range_are_set_on_every_entry() -> None:
    cond = [*entry("a", strength=2.0), *entry("b")]
    limits = {"mask": MASK, "set_area_to_bounds": True, "mask_strength": 0.5}
    times = {"start_percent": 0.25, "end_percent": 0.75}
    given = {"cond_NEW": cond, "mask": MASK, "set_cond_area": "mask bounds", "timesteps": [0.25, 0.75]}
    (found,) = await made("ConditioningSetProperties", **given)
    assert found == [[cond[0][0], {"strength": 2.0, **limits, **times}], [cond[1][0], {**limits, **times}]]
    assert cond[0][1] == {"strength": 2.0}


async def test_without_a_mask_strength_and_area_say_nothing() -> None:
    (found,) = await made("ConditioningSetProperties", cond_NEW=entry("a"), mask=None, timesteps=None)
    assert found == entry("a")


@pytest.mark.parametrize("combines", [True, False])
async def test_pairs_are_limited_alike_and_come_behind(combines: bool) -> None:
    news = {"positive_NEW": entry("p"), "negative_NEW": entry("n"), "timesteps": [0.0, 0.5]}
    times = {"start_percent": 0.0, "end_percent": 0.5}
    if combines:
        found = await made(
            "PairConditioningSetPropertiesAndCombine", positive=entry("a"), negative=entry("b"), **news
        )
        assert found == ([*entry("a"), *entry("p", **times)], [*entry("b"), *entry("n", **times)])
    else:
        assert await made("PairConditioningSetProperties", **news) == (entry("p", **times), entry("n", **times))


async def test_pairs_are_combined_side_by_side() -> None:
    sides = {
        "positive_A": entry("a"),
        "negative_A": entry("b"),
        "positive_B": entry("c"),
        "negative_B": entry("d"),
    }
    assert await made("PairConditioningCombine", **sides) == (
        [*entry("a"), *entry("c")],
        [*entry("b"), *entry("d")],
    )


async def test_a_range_comes_with_what_is_before_and_after_it() -> None:
    ranges = await made("ConditioningTimestepsRange", start_percent=0.2, end_percent=0.6)
    assert ranges == ([0.2, 0.6], [0.0, 0.2], [0.6, 1.0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"hooks": {}}, "hooks of conditionings are not supported"),
        ({"timesteps": 3}, "takes a TIMESTEPS_RANGE, but got int"),
        ({"cond": entry("a") * MAX_ENTRIES}, f"has {MAX_ENTRIES + 1} entries"),
    ],
)
async def test_what_cannot_be_done_is_told(inputs: dict[str, Any], message: str) -> None:
    given = {"cond": entry("a"), "cond_NEW": entry("b"), **inputs}
    with pytest.raises(PromptError, match=message):
        await made("ConditioningSetPropertiesAndCombine", **given)
