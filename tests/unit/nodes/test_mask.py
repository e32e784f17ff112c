"""Masks: what each node asks for."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, Output
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog, FakeContext, tensor
from tests.support.graph_lowered import output

MASK = tensor("m", 1, 48, 64)
IMAGE = tensor("i", 1, 48, 64, 3)


@pytest.mark.parametrize(
    ("node", "inputs", "function", "given", "port"),
    [
        ("SolidMask", {"value": 0.5, "width": 3, "height": 2}, "mask.solid", {}, "mask"),
        ("InvertMask", {"mask": MASK}, "mask.invert", {}, "mask"),
        ("MaskToImage", {"mask": MASK}, "mask.to_image", {}, "images"),
        ("GrowMask", {"mask": MASK, "expand": -3, "tapered_corners": False}, "mask.grow", {}, "mask"),
        (
            "FeatherMask",
            {"mask": MASK, "left": 1, "top": 2, "right": 3, "bottom": 4},
            "mask.feather",
            {},
            "mask",
        ),
        (
            "MaskComposite",
            {"destination": MASK, "source": MASK, "x": 1, "y": 2, "operation": "xor"},
            "mask.composite",
            {},
            "mask",
        ),
        (
            "ImageToMask",
            {"image": IMAGE, "channel": "green"},
            "image.to_mask",
            {"images": IMAGE, "channel": "green"},
            "mask",
        ),
    ],
)
async def test_node_is_one_invocation_of_its_function(
    node: str, inputs: dict[str, Any], function: str, given: dict[str, Any], port: str
) -> None:
    ctx = FakeContext()
    value = await output(node, ctx, **inputs)
    (call,) = ctx.calls
    assert (call.function, call.inputs) == (function, given or inputs)
    assert value == Output(call.id, port)


async def test_mask_is_loaded_from_an_upload() -> None:
    ctx = FakeContext()
    value = await output("LoadImageMask", ctx, image="a.png [output]", channel="red")
    (call,) = ctx.calls
    assert call.inputs == {"file": FileRef("/input/a.png [output]"), "channel": "red"}
    assert value == Output(call.id, "mask")


def test_missing_upload_is_refused_and_a_replaced_one_is_noticed() -> None:
    node = BUILTIN.get("LoadImageMask")
    assert node is not None
    assert node.check_inputs is not None
    assert node.is_changed is not None
    catalog = FakeCatalog(uploads={"a.png": FileRef("/input/a.png", 5, 7)})
    assert node.check_inputs(catalog, {"image": "b.png"}) == {"image": "Invalid image file: b.png"}
    assert node.check_inputs(catalog, {"image": "a.png"}) == {}
    assert node.is_changed(catalog, {"image": "a.png"}) == FileRef("/input/a.png", 5, 7)


async def test_text_instead_of_a_mask_is_refused() -> None:
    with pytest.raises(PromptError, match="'mask' takes a MASK, but got str"):
        await output("InvertMask", mask="x")
