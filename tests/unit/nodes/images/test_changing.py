"""Nodes that change images: the sizes they compute, and what they refuse."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import output

IMAGE = tensor("i", 2, 64, 96, 3)


async def test_largest_side_is_set_and_the_ratio_kept() -> None:
    ctx = FakeContext()
    await output("ImageScaleToMaxDimension", ctx, image=IMAGE, upscale_method="area", largest_size=192)
    (call,) = ctx.calls
    assert (call.inputs["width"], call.inputs["height"]) == (192, 128)


@pytest.mark.parametrize(("steps", "size"), [(1, (1254, 836)), (64, (1280, 832))])
async def test_area_is_set_in_steps(steps: int, size: tuple[int, int]) -> None:
    ctx = FakeContext()
    given = {"upscale_method": "area", "megapixels": 1.0, "resolution_steps": steps}
    await output("ImageScaleToTotalPixels", ctx, image=IMAGE, **given)
    (call,) = ctx.calls
    assert (call.inputs["width"], call.inputs["height"]) == size


async def test_rotation_is_counted_in_right_angles() -> None:
    ctx = FakeContext()
    await output("ImageRotate", ctx, image=IMAGE, rotation="270 degrees")
    assert ctx.calls[0].inputs["turns"] == 3


async def test_batch_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="8192 images, at most 4096"):
        await output("RepeatImageBatch", image=IMAGE, amount=4096)


async def test_stitching_with_nothing_gives_the_image_back() -> None:
    given = {"direction": "right", "match_image_size": True, "spacing_width": 0, "spacing_color": "white"}
    assert await output("ImageStitch", image1=IMAGE, **given) == IMAGE
