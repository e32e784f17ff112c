"""Check that what patches raise names them and keeps its type and frames."""

from __future__ import annotations

from functools import partial

import pytest

from comfyserverless.core.errors import PromptError, WorkerError
from comfyserverless.models.patching.calling import call, name_of


class Failing:
    """A patch that is an object."""

    def __call__(self, value: int) -> int:
        return {}[value]  # type: ignore[no-any-return]


def test_error_names_the_point_and_the_callable_with_its_own_frames() -> None:
    with pytest.raises(WorkerError) as raised:
        call("output_block_patch", Failing(), 3)
    assert str(raised.value) == f"output_block_patch {__name__}.Failing: 3"
    assert raised.value.exception_type == "KeyError"
    assert any("return {}[value]" in frame for frame in raised.value.traceback)


def test_our_own_errors_and_lack_of_memory_pass() -> None:
    def blame() -> None:
        raise PromptError("too large")

    def exhaust() -> None:
        raise MemoryError

    with pytest.raises(PromptError, match=r"^too large$"):
        call("attn1_patch", blame)
    with pytest.raises(MemoryError):
        call("attn1_patch", exhaust)


def test_partial_functions_are_called_by_what_they_wrap() -> None:
    assert name_of(partial(partial(name_of, 1), 2)) == "comfyserverless.models.patching.calling.name_of"
