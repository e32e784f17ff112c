"""Check what nodes write on handles, and that workers know each patch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyserverless.core.values import PYTHON_PATCH, FileRef, ModelRef, Patch
from comfyserverless.nodes.patching import guidance, networks, operations
from comfyserverless.nodes.patching.handles import may_split, with_patch

MODEL = ModelRef(FileRef("/models/a"))
FOREIGN = Patch(PYTHON_PATCH, (("path", "/patches/digest"),))


def defaults(declaration: Any) -> dict[str, Any]:
    """Return a value for each input, the default or the first choice."""
    given: dict[str, Any] = {"model": MODEL}
    for spec in declaration.inputs:
        if isinstance(spec.type, tuple):
            given[spec.name] = spec.type[0]
        elif "default" in spec.options:
            given[spec.name] = spec.options["default"]
    return given


def lowered(declaration: Any, **inputs: Any) -> Any:
    result = asyncio.run(declaration.lower(None, {**defaults(declaration), **inputs}))
    return result.outputs[0]


PATCHING = {each.name: each for each in (*guidance.NODES, *networks.NODES)}


@pytest.mark.parametrize("name", PATCHING)
def test_node_adds_a_patch_whose_settings_are_literals(name: str) -> None:
    handle = lowered(PATCHING[name])
    assert handle.file == MODEL.file
    assert handle.patches
    for patch in handle.patches:
        assert all(isinstance(value, str | int | float | bool) for _, value in patch.arguments)
        hash(patch)


def test_settings_of_a_node_reach_the_patch_by_name() -> None:
    handle = lowered(PATCHING["RescaleCFG"], multiplier=0.25)
    assert handle.patches == (Patch("rescale_cfg", (("multiplier", 0.25),)),)


def test_a_latent_operation_becomes_a_patch() -> None:
    by_name = {each.name: each for each in operations.NODES}
    operation = lowered(by_name["LatentOperationSharpen"], alpha=0.5)
    handle = lowered(by_name["LatentApplyOperationCFG"], operation=operation)
    assert dict(handle.patches[0].arguments) == {
        "operation": "sharpen",
        "sharpen_radius": 9,
        "sigma": 1.0,
        "alpha": 0.5,
    }


def test_what_a_pack_put_in_stays_the_last() -> None:
    model = with_patch(ModelRef(MODEL.file, patches=(FOREIGN,)), "mahiro", {})
    assert model.patches == (Patch("mahiro"), FOREIGN)


def test_branches_are_evaluated_together_where_a_patch_looks_at_both() -> None:
    assert may_split(with_patch(MODEL, "freeu", {}))
    assert not may_split(with_patch(MODEL, "rescale_cfg", {}))
    assert not may_split(ModelRef(MODEL.file, patches=(FOREIGN,)))
