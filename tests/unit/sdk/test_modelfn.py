"""What authors of model functions may declare."""

from __future__ import annotations

import pytest

from comfyserverless.sdk.modelfn import IoSetup, Streamed


@pytest.mark.parametrize("is_callback", [(True, False), (False, True), (True, True)])
def test_a_callback_output_beside_another_is_refused(is_callback: tuple[bool, bool]) -> None:
    io = IoSetup()
    io.add_output("first", callback=is_callback[0])
    with pytest.raises(ValueError, match="'second' is declared beside another"):
        io.add_output("second", callback=is_callback[1])


def test_streamed_elements_are_collected_in_their_places() -> None:
    elements = iter([("b", 0, "x"), ("a", 1, "y"), ("a", 0, "z")])
    assert Streamed({"a": 2, "b": 1, "c": 0}, elements).collect() == {"a": ["z", "y"], "b": ["x"], "c": []}
