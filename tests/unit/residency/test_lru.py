"""Whole models within a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.residency.lru import LruBudget


def test_the_least_recently_used_key_goes_first() -> None:
    budget = LruBudget(10)
    assert budget.use("a", 4) == []
    assert budget.use("b", 4) == []
    assert budget.use("a", 4) == []
    assert budget.use("c", 4) == ["b"]
    assert (budget.keys(), budget.total_bytes) == (["a", "c"], 8)


def test_as_many_go_as_the_newcomer_needs_and_no_more() -> None:
    budget = LruBudget(10)
    for key in "abcde":
        budget.use(key, 2)
    assert budget.use("f", 3) == ["a", "b"]


def test_a_key_in_use_stays_and_the_next_one_goes() -> None:
    budget = LruBudget(10)
    budget.use("a", 5)
    budget.pin("a")
    budget.use("b", 5)
    assert budget.use("c", 5) == ["b"]


def test_the_budget_is_exceeded_while_everything_is_in_use_and_holds_again_after() -> None:
    budget = LruBudget(10)
    budget.use("a", 8)
    budget.pin("a")
    assert budget.use("b", 8) == []
    assert budget.total_bytes == 16
    budget.unpin("a")
    assert budget.trim() == ["a"]
    assert budget.total_bytes == 8


def test_a_key_pinned_twice_is_in_use_until_the_second_unpin() -> None:
    budget = LruBudget(1)
    budget.use("a", 5)
    budget.pin("a")
    budget.pin("a")
    budget.unpin("a")
    assert budget.trim() == []
    budget.unpin("a")
    assert budget.trim() == ["a"]


def test_a_key_larger_than_the_budget_evicts_the_others_but_not_itself() -> None:
    budget = LruBudget(10)
    budget.use("a", 5)
    assert budget.use("b", 50) == ["a"]
    assert "b" in budget


def test_a_key_that_grew_is_counted_at_its_new_size() -> None:
    budget = LruBudget(10)
    budget.use("a", 2)
    budget.use("b", 2)
    assert budget.use("b", 9) == ["a"]
    assert budget.total_bytes == 9


def test_removing_frees_the_bytes_and_a_key_in_use_cannot_be_removed() -> None:
    budget = LruBudget(10)
    budget.use("a", 2)
    budget.pin("a")
    with pytest.raises(KeyError, match="in use"):
        budget.remove("a")
    budget.unpin("a")
    budget.remove("a")
    assert (budget.keys(), budget.total_bytes) == ([], 0)


def test_misuse_is_refused() -> None:
    budget = LruBudget(10)
    with pytest.raises(KeyError, match="not resident"):
        budget.pin("a")
    with pytest.raises(KeyError):
        budget.unpin("a")
    with pytest.raises(ValueError, match="0 or more"):
        budget.use("a", -1)
    with pytest.raises(ValueError, match="0 or more"):
        LruBudget(-1)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.sampled_from(("use", "pin", "unpin"))))
)
def test_only_what_is_in_use_or_newest_can_exceed_the_budget(steps: list[tuple[str, int, str]]) -> None:
    budget = LruBudget(12)
    sizes_bytes: dict[str, int] = {}
    pins: dict[str, int] = {}
    for key, size_bytes, what in steps:
        if what == "use":
            sizes_bytes[key] = size_bytes
            for gone in budget.use(key, size_bytes):
                assert gone != key
                assert not pins.get(gone)
                del sizes_bytes[gone]
            free = {each for each in sizes_bytes if each != key and not pins.get(each)}
            assert budget.total_bytes <= 12 or not free
        elif what == "pin" and key in sizes_bytes:
            budget.pin(key)
            pins[key] = pins.get(key, 0) + 1
        elif what == "unpin" and pins.get(key):
            budget.unpin(key)
            pins[key] -= 1
        assert budget.total_bytes == sum(sizes_bytes.values())
        assert set(budget.keys()) == set(sizes_bytes)
