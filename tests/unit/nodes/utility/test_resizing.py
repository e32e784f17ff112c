"""Resizing and cutting."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import output

IMAGE = tensor("i", 1, 600, 800, 3)


def _given(kind: str, **settings: Any) -> dict[str, Any]:
    return {"resize_type": kind, "scale_method": "area", **{f"resize_type.{k}": v for k, v in settings.items()}}


@pytest.mark.parametrize(
    ("kind", "settings", "size"),
    [
        ("scale by multiplier", {"multiplier": 0.5}, (400, 300, "disabled")),
        ("scale dimensions", {"width": 512, "height": 512, "crop": "center"}, (512, 512, "center")),
        ("scale dimensions", {"width": 400, "height": 0, "crop": "center"}, (400, 300, "center")),
        ("scale longer dimension", {"longer_size": 1000}, (1000, 750, "disabled")),
        ("scale shorter dimension", {"shorter_size": 300}, (400, 300, "disabled")),
        ("scale width", {"width": 200}, (200, 150, "disabled")),
        ("scale height", {"height": 1200}, (1600, 1200, "disabled")),
        ("scale total pixels", {"megapixels": 1.0}, (1182, 887, "disabled")),
        ("match size", {"match": tensor("m", 1, 40, 30), "crop": "disabled"}, (30, 40, "disabled")),
    ],
)
async def test_image_gets_the_size_that_is_asked_for(
    kind: str, settings: dict[str, Any], size: tuple[int, int, str]
) -> None:
    ctx = FakeContext()
    await output("ResizeImageMaskNode", ctx, input=IMAGE, **_given(kind, **settings))
    (call,) = ctx.calls
    assert call.function == "image.scale"
    assert (call.inputs["width"], call.inputs["height"], call.inputs["crop"]) == size


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("scale by multiplier", {"multiplier": 1.0}),
        ("scale dimensions", {"width": 0, "height": 0, "crop": "center"}),
        ("scale width", {"width": 0}),
    ],
)
async def test_picture_that_keeps_its_size_stays_as_it_is(kind: str, settings: dict[str, Any]) -> None:
    ctx = FakeContext()
    assert await output("ResizeImageMaskNode", ctx, input=IMAGE, **_given(kind, **settings)) is IMAGE
    assert ctx.calls == []


async def test_mask_stays_a_mask() -> None:
    ctx = FakeContext()
    await output("ResizeImageMaskNode", ctx, input=tensor("m", 1, 60, 80), **_given("scale width", width=40))
    assert ctx.functions() == ["mask.scale"]


def test_each_type_has_inputs_of_its_own() -> None:
    node = BUILTIN.get("ResizeImageMaskNode")
    assert node is not None
    assert node.dynamic_inputs is not None
    specs = node.dynamic_inputs({"resize_type": "match size", "resize_type.width": 5})
    assert [spec.name for spec in specs] == [
        "input",
        "resize_type",
        "resize_type.match",
        "resize_type.crop",
        "scale_method",
    ]
    assert [spec.name for spec in node.dynamic_inputs({"resize_type": "unknown"})][1:] == [
        "resize_type",
        "scale_method",
    ]


@pytest.mark.parametrize(
    ("box", "part"),
    [
        ((10, 20, 100, 50), (10, 20, 100, 50)),
        ((700, 20, 512, 512), (700, 20, 100, 512)),
        ((5000, -3, 1, 1), (799, 0, 1, 1)),
    ],
)
async def test_box_is_cut_out_as_far_as_the_image_reaches(box: tuple[int, ...], part: tuple[int, ...]) -> None:
    ctx = FakeContext()
    names = ("x", "y", "width", "height")
    await output("ImageCropV2", ctx, image=IMAGE, crop_region=dict(zip(names, box, strict=True)))
    assert tuple(ctx.calls[0].inputs[name] for name in names) == part


@pytest.mark.parametrize("box", [[1, 2, 3, 4], {"x": 0, "y": 0, "width": "a", "height": 1}, {}, None])
async def test_what_is_no_box_is_refused(box: Any) -> None:
    with pytest.raises(PromptError, match="crop_region"):
        await output("ImageCropV2", image=IMAGE, crop_region=box)


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [(800, 600, (1184, 880)), (512, 512, (1024, 1024)), (100, 900, (672, 1568)), (900, 100, (1568, 672))],
)
async def test_image_is_scaled_to_the_nearest_ratio_of_kontext(
    width: int, height: int, size: tuple[int, int]
) -> None:
    ctx = FakeContext()
    await output("FluxKontextImageScale", ctx, image=tensor("i", 1, height, width, 3))
    assert (ctx.calls[0].inputs["width"], ctx.calls[0].inputs["height"]) == size
