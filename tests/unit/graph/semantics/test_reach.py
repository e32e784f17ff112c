"""Numbers that come over links."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.graph.declaration import InputSpec
from comfyserverless.graph.semantics.reach import OutOfReachError, check_reach

SPECS = {
    "width": InputSpec("width", "INT", {"min": 16, "max": 100}),
    "cfg": InputSpec("cfg", "FLOAT", {"min": 0.0, "max": 10.0}),
    "seed": InputSpec("seed", "INT", {"min": 0, "max": 2**64 - 1}),
    "free": InputSpec("free", "INT", {"min": 0}),
    "text": InputSpec("text", "STRING", {"min": 0, "max": 1}),
}


@pytest.mark.parametrize(
    "call",
    [
        {"width": 184, "cfg": 20.0},
        {"width": -68, "cfg": -10.0},
        {"width": [16, 100], "seed": 2**64 - 1},
        {"free": 10**30, "text": "long", "unknown": 10**30},
        {"width": "a text", "cfg": None},
    ],
)
def test_number_may_miss_its_range_by_the_width_of_the_range(call: dict[str, Any]) -> None:
    check_reach(call, SPECS)


@pytest.mark.parametrize(
    "call", [{"width": 185}, {"width": -69}, {"width": [16, 10**30]}, {"cfg": 20.5}, {"cfg": float("nan")}]
)
def test_number_far_beyond_its_range_is_refused_by_name(call: dict[str, Any]) -> None:
    (name,) = call
    with pytest.raises(OutOfReachError, match=f"Input '{name}' takes"):
        check_reach(call, SPECS)
