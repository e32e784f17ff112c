"""Check that workers know every patch that a node writes, with the settings it writes."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.patching.builtin.registry import BUILDERS
from comfyserverless.functions.patching.subject import subject_of
from tests.support.analytic_models import FACTS
from tests.unit.nodes.patching.test_handles import PATCHING, lowered


@pytest.mark.parametrize("name", PATCHING)
def test_patch_of_a_node_is_known(name: str) -> None:
    model = lowered(PATCHING[name])
    if name.startswith("SkipLayer"):
        with pytest.raises(PromptError, match="is a U-Net"):
            subject_of(model, FACTS)
    else:
        subject_of(model, FACTS)


def test_every_patch_has_a_node() -> None:
    written = {patch.name for node in PATCHING.values() for patch in lowered(node).patches}
    assert written | {"latent_operation"} == set(BUILDERS)
