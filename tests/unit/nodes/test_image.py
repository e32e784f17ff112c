"""Images: loading, scaling, saving with names and metadata."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import FileRef, Output
from tests.support.graph_fakes import Call, FakeContext, tensor
from tests.support.graph_lowered import lower, output

PICTURES = tensor("i", 2, 48, 64, 3)


def saving(**more: Any) -> FakeContext:
    return FakeContext(
        results={"image.save": {"files": ["/output/.save1_0.part", "/output/.save1_1.part"]}}, **more
    )


async def test_image_and_mask_come_from_one_invocation() -> None:
    ctx = FakeContext()
    image, mask = (await lower("LoadImage", ctx, image="a.png [output]")).outputs
    (call,) = ctx.calls
    assert call.inputs == {"file": FileRef("/input/a.png [output]")}
    assert (image, mask) == (Output(call.id, "images"), Output(call.id, "mask"))


async def test_saved_images_are_published_in_order_and_shown() -> None:
    ctx = saving(extra_pnginfo={"workflow": {"nodes": []}})
    result = await lower("SaveImage", ctx, images=PICTURES, filename_prefix="sub/x_%width%_%height%")
    (call,) = ctx.calls
    assert call.inputs["images"] == PICTURES
    assert call.inputs["directory"] == "/output/sub"
    assert call.inputs["stem"] == ".save1"
    assert call.inputs["compress_level"] == 4
    metadata = call.inputs["metadata"]
    assert {key: json.loads(text) for key, text in metadata.items()} == {
        "prompt": {"9": {"class_type": "X"}},
        "workflow": {"nodes": []},
    }
    ((place, staged, extension),) = ctx.published
    assert (place.name, staged, extension) == (
        "x_64_48",
        ("/output/.save1_0.part", "/output/.save1_1.part"),
        "png",
    )
    assert result.ui == {
        "images": [
            {"filename": "x_64_48_00001_.png", "subfolder": "sub", "type": "output"},
            {"filename": "x_64_48_00002_.png", "subfolder": "sub", "type": "output"},
        ]
    }


async def test_metadata_can_be_turned_off() -> None:
    ctx = saving(extra_pnginfo={"workflow": {}}, embeds_metadata=False)
    await lower("SaveImage", ctx, images=PICTURES, filename_prefix="x")
    assert ctx.calls[0].inputs["metadata"] == {}


async def test_size_of_images_in_the_making_is_awaited_before_the_name_is_chosen() -> None:
    ctx = saving()
    decoded = ctx.emit("vae.decode", vae=None, samples=None).out("images")
    ctx.results["vae.decode"] = {"images": PICTURES}
    result = await lower("SaveImage", ctx, images=decoded, filename_prefix="%width%")
    assert ctx.awaited[0] == decoded
    assert ctx.calls[1].inputs["images"] == decoded
    assert result.ui is not None
    assert result.ui["images"][0]["filename"] == "64_00001_.png"


async def test_preview_goes_to_temp_under_a_name_of_its_node() -> None:
    names = []
    for node_id in ("9", "9", "10"):
        ctx = saving(node_id=node_id)
        result = await lower("PreviewImage", ctx, images=PICTURES)
        assert ctx.calls[0].inputs["compress_level"] == 1
        assert result.ui is not None
        item = result.ui["images"][0]
        assert item["type"] == "temp"
        names.append(item["filename"])
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("ComfyUI_temp_")


async def scaled_by(width: int, height: int, image: Any = PICTURES, ctx: FakeContext | None = None) -> Call:
    ctx = ctx or FakeContext()
    value = await output(
        "ImageScale", ctx, image=image, upscale_method="area", width=width, height=height, crop="center"
    )
    assert value == Output(ctx.calls[-1].id, "images")
    return ctx.calls[-1]


@pytest.mark.parametrize(
    ("asked", "given"), [((10, 20), (10, 20)), ((0, 24), (32, 24)), ((32, 0), (32, 24)), ((1, 0), (1, 1))]
)
async def test_scaled_size_keeps_the_ratio_where_zero_is_asked(
    asked: tuple[int, int], given: tuple[int, int]
) -> None:
    call = await scaled_by(*asked)
    assert (call.inputs["width"], call.inputs["height"]) == given
    assert (call.inputs["method"], call.inputs["crop"]) == ("area", "center")


async def test_scaling_waits_for_the_shape_only_where_it_needs_it() -> None:
    making = Output(InvocationId("image.load#0"), "images")
    ctx = FakeContext()
    await scaled_by(8, 8, making, ctx)
    assert ctx.awaited == []


async def test_scaling_to_nothing_gives_the_image_back() -> None:
    value = await output("ImageScale", image=PICTURES, upscale_method="area", width=0, height=0, crop="center")
    assert value == PICTURES


async def test_text_instead_of_images_is_refused() -> None:
    with pytest.raises(PromptError, match="'images' takes a IMAGE, but got str"):
        await lower("SaveImage", images="x", filename_prefix="x")


@pytest.mark.parametrize(
    ("node", "inputs", "function"),
    [
        ("EmptyImage", {"width": 3, "height": 2, "batch_size": 4, "color": 0xFF}, "image.empty"),
        ("ImageInvert", {"image": PICTURES}, "image.invert"),
        ("ImageCrop", {"image": PICTURES, "width": 5, "height": 6, "x": 7, "y": 8}, "image.crop"),
        ("Canny", {"image": PICTURES, "low_threshold": 0.1, "high_threshold": 0.3}, "image.canny"),
    ],
)
async def test_image_node_is_one_invocation_of_its_function(
    node: str, inputs: dict[str, Any], function: str
) -> None:
    ctx = FakeContext()
    value = await output(node, ctx, **inputs)
    (call,) = ctx.calls
    given = {"images" if name == "image" else name: each for name, each in inputs.items()}
    assert (call.function, call.inputs) == (function, given)
    assert value == Output(call.id, "images")


@pytest.mark.parametrize(("factor", "size"), [(1.375, (88, 66)), (0.01, (1, 0)), (0.0235, (2, 1))])
async def test_factor_of_a_scale_is_rounded_to_whole_pixels(factor: float, size: tuple[int, int]) -> None:
    ctx = FakeContext()
    value = await output("ImageScaleBy", ctx, image=PICTURES, upscale_method="area", scale_by=factor)
    (call,) = ctx.calls
    assert (call.inputs["width"], call.inputs["height"]) == size
    assert (call.function, call.inputs["method"], call.inputs["crop"]) == ("image.scale", "area", "disabled")
    assert value == Output(call.id, "images")
