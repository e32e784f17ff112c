"""Which outputs may feed which inputs."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.graph.compatibility import is_compatible
from comfyserverless.graph.declaration import FileChoices


class Wildcard(str):
    """A pack's type that is never unequal to anything."""

    __slots__ = ()

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ("IMAGE", "IMAGE", True),
        ("IMAGE", "MASK", False),
        ("*", "MODEL", True),
        ("MODEL", "*", True),
        ("COMFY_MATCHTYPE_V3", "MODEL", True),
        ("INT,FLOAT", "FLOAT", True),
        ("INT", "FLOAT , INT", True),
        ("INT,STRING", "FLOAT,MASK", False),
        ("INT", "FLOAT,*", True),
        (["a", "b"], "COMBO", True),
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        ("STRING", ("a", "b"), False),
        ("STRING", FileChoices("loras"), False),
        ("*", FileChoices("loras"), True),
        (Wildcard("anything"), "MODEL", True),
        ("MODEL", Wildcard("anything"), True),
        (Wildcard("anything"), ("a",), True),
        ("image", "IMAGE", False),
    ],
)
def test_types_fit_or_not(source: Any, target: Any, fits: bool) -> None:
    assert is_compatible(source, target) is fits
