"""Saving animations, deep images and texts."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.values import FileRef
from comfyserverless.graph.lowering import StepProgress
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog, FakeContext, tensor
from tests.support.graph_lowered import lower

IMAGES = tensor("i", 3, 48, 64, 3)


def _saving(function: str) -> FakeContext:
    return FakeContext(results={function: {"files": ["/output/.save1_0.part"]}})


@pytest.mark.parametrize(
    ("node", "function", "settings", "extension"),
    [
        (
            "SaveAnimatedWEBP",
            "image.save_webp",
            {"lossless": False, "quality": 70, "method": "slowest"},
            "webp",
        ),
        ("SaveAnimatedPNG", "image.save_apng", {"compress_level": 9}, "png"),
    ],
)
async def test_animation_is_one_file_and_marked_as_such(
    node: str, function: str, settings: dict[str, Any], extension: str
) -> None:
    ctx = _saving(function)
    result = await lower(node, ctx, images=IMAGES, filename_prefix="a/%width%", fps=8.0, **settings)
    assert result.ui is not None
    assert result.ui["animated"] == [True]
    assert result.ui["images"] == [{"filename": f"64_00001_.{extension}", "subfolder": "a", "type": "output"}]
    assert ctx.calls[0].inputs["frames_per_s"] == 8.0


@pytest.mark.parametrize(("depth", "function"), [("8-bit", "image.save"), ("16-bit", "image.save_deep")])
async def test_images_are_saved_with_the_bits_that_are_asked_for_and_given_on(
    depth: str, function: str
) -> None:
    ctx = _saving(function)
    given = {"format": "png", "format.bit_depth": depth, "format.input_color_space": "sRGB"}
    result = await lower("SaveImageAdvanced", ctx, images=IMAGES, filename_prefix="x", **given)
    assert ctx.functions() == [function]
    assert result.outputs == (IMAGES,)
    assert ctx.published[0][2] == "png"


async def test_text_is_saved_shown_and_given_on() -> None:
    ctx = _saving("text.save")
    result = await lower("SaveText", ctx, text='{"a":1}', filename_prefix="t", format="txt")
    assert ctx.calls[0].inputs["text"] == '{"a":1}'
    assert result.outputs == ('{"a":1}',)
    assert result.ui is not None
    assert result.ui["text"] == ['{"a":1}']
    assert result.ui["files"][0]["filename"] == "t_00001_.txt"


@pytest.mark.parametrize(("text", "written"), [('{"a":1}', '{\n  "a": 1\n}'), ("no {json", "no {json")])
async def test_json_is_indented_and_other_text_saved_as_it_is(text: str, written: str) -> None:
    ctx = _saving("text.save")
    await lower("SaveText", ctx, text=text, format="json")
    assert ctx.calls[0].inputs["text"] == written


async def test_saved_image_is_loaded_again_and_a_missing_one_refused() -> None:
    ctx = FakeContext()
    await lower("LoadImageOutput", ctx, image="a.png [output]")
    assert ctx.calls[0].inputs == {"file": FileRef("/input/a.png [output]")}
    node = BUILTIN.get("LoadImageOutput")
    assert node is not None
    assert node.check_inputs is not None
    assert node.check_inputs(FakeCatalog(), {"image": "b.png [output]"}) != {}


async def test_images_are_sent_one_by_one_as_previews_of_their_progress() -> None:
    ctx = FakeContext(results={"image.encode": {"preview": b"png"}})
    await lower("SaveImageWebsocket", ctx, images=IMAGES)
    assert [(call.inputs["index"], call.progress) for call in ctx.calls] == [
        (index, StepProgress(index + 1, 3)) for index in range(3)
    ]
