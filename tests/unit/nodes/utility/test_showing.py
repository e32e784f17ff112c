"""Values in the page."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.core.values import FileRef, LoraRef, ModelRef, ObjectRef
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import CLIP, MODEL, lower

_SAVED = {"image.save": {"files": ["/temp/.save1_0.part"]}}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "a\nb"),
        (5, "5"),
        (0.5, "0.5"),
        (True, "True"),
        (None, "None"),
        ({"a": [1, "x"]}, '{\n    "a": [\n        1,\n        "x"\n    ]\n}'),
        (MODEL, "<MODEL sd15_tiny.safetensors>"),
        (CLIP, "<CLIP sd15_tiny.safetensors>"),
        (ModelRef(FileRef("/m/a.ckpt"), loras=(LoraRef(FileRef("/l"), 1.0),)), "<MODEL a.ckpt, loras: 1>"),
        (ObjectRef(TensorId("o"), WorkerId("h"), "Pipe"), "<Pipe object>"),
        (ObjectRef(TensorId("o"), WorkerId("h"), "builtins.tuple", "(1, 2)"), "(1, 2)"),
    ],
)
async def test_value_is_shown_as_text_and_given_on(value: Any, text: str) -> None:
    result = await lower("PreviewAny", source=value)
    assert result.ui == {"text": [text]}
    assert result.outputs == (text,)


async def test_value_with_tensors_is_written_by_a_worker() -> None:
    ctx = FakeContext(results={"text.show": {"text": "tensor(...)"}})
    conditioning = [[tensor("c", 1, 77, 768), {"pooled_output": None, "control": MODEL}]]
    assert (await lower("PreviewAny", ctx, source=conditioning)).ui == {"text": ["tensor(...)"]}
    shown = [[tensor("c", 1, 77, 768), {"pooled_output": None, "control": "<MODEL sd15_tiny.safetensors>"}]]
    assert ctx.calls[0].inputs["value"] == shown


async def test_images_that_are_compared_are_previews_of_their_own() -> None:
    ctx = FakeContext(results=_SAVED)
    inputs = {"compare_view": ["", ""], "image_a": tensor("a", 1, 8, 8, 3), "image_b": tensor("b", 1, 8, 8, 3)}
    ui = (await lower("ImageCompare", ctx, **inputs)).ui
    assert ui is not None
    assert {key: [item["type"] for item in items] for key, items in ui.items()} == {
        "a_images": ["temp"],
        "b_images": ["temp"],
    }
    assert ui["a_images"][0]["filename"] != ui["b_images"][0]["filename"]


async def test_one_image_can_be_compared_with_nothing() -> None:
    ui = (await lower("ImageCompare", FakeContext(results=_SAVED), image_b=tensor("b", 1, 8, 8, 3))).ui
    assert ui is not None
    assert list(ui) == ["b_images"]


async def test_mask_is_previewed_as_an_image() -> None:
    ctx = FakeContext(results=_SAVED)
    result = await lower("MaskPreview", ctx, mask=tensor("m", 1, 8, 8))
    assert ctx.functions() == ["mask.to_image", "image.save"]
    assert result.ui is not None
    assert result.ui["images"][0]["type"] == "temp"
