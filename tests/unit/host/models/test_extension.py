"""Call wrappers from the outside in, and keep them by key."""

from __future__ import annotations

from typing import Any

from comfyserverless.host.models import extension
from comfyserverless.host.models.extension import WrapperExecutor, WrappersMP


def test_first_wrapper_is_outermost_and_sees_the_object() -> None:
    calls: list[Any] = []

    def outer(executor: Any, value: int) -> Any:
        calls.append(("outer", executor.class_obj))
        return executor(value + 1) * 10

    def inner(executor: Any, value: int) -> Any:
        calls.append(("inner", value))
        return executor(value)

    holder = object()
    executor = WrapperExecutor.new_class_executor(lambda value: value * 2, holder, [outer, inner])
    assert executor.execute(3) == 80
    assert calls == [("outer", holder), ("inner", 4)]


def test_wrappers_are_listed_by_kind_in_the_order_of_their_keys() -> None:
    options: dict[str, Any] = {}
    extension.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "b", len, options, is_model_options=True)
    extension.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "a", max, options, is_model_options=True)
    extension.add_wrapper(WrappersMP.APPLY_MODEL, min, options["transformer_options"])
    found = extension.get_all_wrappers(WrappersMP.APPLY_MODEL, options, is_model_options=True)
    assert found == [len, max, min]
    assert extension.get_wrappers_with_key(WrappersMP.APPLY_MODEL, "a", options["transformer_options"]) == [max]
    assert extension.get_all_wrappers(WrappersMP.OUTER_SAMPLE, options, is_model_options=True) == []


def test_merged_dicts_join_their_lists_and_leave_both_as_they_were() -> None:
    first, second = {"a": {"x": [1]}, "b": 1}, {"a": {"x": [2], "y": [3]}, "b": 2}
    assert extension.merge_nested_dicts(first, second) == {"a": {"x": [1, 2], "y": [3]}, "b": 2}
    assert first == {"a": {"x": [1]}, "b": 1}
