"""The shelf of loaded things."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyserverless.models.shelf import Shelf


def thing(size_bytes: int, calls: list[int] | None = None) -> Callable[[], tuple[object, int]]:
    def load() -> tuple[object, int]:
        if calls is not None:
            calls.append(size_bytes)
        return object(), size_bytes

    return load


def test_a_thing_is_loaded_once() -> None:
    shelf, calls = Shelf(None), list[int]()
    assert shelf.take("a", thing(5, calls)) is shelf.take("a", thing(5, calls))
    assert (calls, shelf.total_bytes) == ([5], 5)


def test_the_least_recently_used_thing_goes_when_the_budget_is_exceeded() -> None:
    shelf = Shelf(10)
    for key in ("a", "b", "a", "c"):
        shelf.take(key, thing(4))
    assert ["a" in shelf, "b" in shelf, "c" in shelf] == [True, False, True]


def test_a_parent_stays_while_a_child_is_there_and_goes_after_it() -> None:
    shelf = Shelf(10)
    shelf.take("base", thing(6))
    shelf.take("lora", thing(1), parent="base")
    shelf.take("other", thing(3))
    assert ("base" in shelf, "lora" in shelf) == (True, True)
    shelf.take("big", thing(7))
    assert ("base" in shelf, "lora" in shelf, "big" in shelf) == (False, False, True)
    assert shelf.total_bytes == 7


def test_a_thing_larger_than_the_budget_is_kept_alone() -> None:
    shelf = Shelf(10)
    shelf.take("a", thing(4))
    shelf.take("huge", thing(50))
    assert ("a" in shelf, "huge" in shelf) == (False, True)


def test_a_failed_load_changes_nothing() -> None:
    shelf = Shelf(10)

    def fail() -> tuple[object, int]:
        raise ValueError("broken file")

    with pytest.raises(ValueError, match="broken file"):
        shelf.take("a", fail)
    assert "a" not in shelf
    assert shelf.total_bytes == 0


def test_a_cleared_shelf_is_empty_and_usable() -> None:
    shelf = Shelf(10)
    shelf.take("base", thing(6))
    shelf.take("lora", thing(1), parent="base")
    shelf.clear()
    assert shelf.total_bytes == 0
    shelf.take("base", thing(6))
    assert shelf.total_bytes == 6
