"""Check what is written on conditionings that act where others leave something."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import output
from tests.unit.nodes.conditionings.test_editing import COND as ENTRIES

COND = ENTRIES[0][0]


async def test_the_default_is_marked_and_comes_behind() -> None:
    own, default = [[COND, {"strength": 0.5}]], [[COND, {"mask_strength": 1.0}]]
    given = {"cond": own, "cond_DEFAULT": default}
    combined = await output("ConditioningSetDefaultCombine", FakeContext(), **given)
    assert combined == [[COND, {"strength": 0.5}], [COND, {"mask_strength": 1.0, "default": True}]]
    assert default == [[COND, {"mask_strength": 1.0}]]


async def test_hooks_are_refused() -> None:
    given = {"cond": [[COND, {}]], "cond_DEFAULT": [[COND, {}]], "hooks": {}}
    with pytest.raises(PromptError, match="hooks of conditionings are not supported"):
        await output("ConditioningSetDefaultCombine", FakeContext(), **given)
