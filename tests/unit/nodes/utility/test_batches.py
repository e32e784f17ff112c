"""Batches and lists."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output
from comfyserverless.graph.lowering import Items
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import lower, output


def _image(name: str, count: int, side: int = 8) -> Any:
    return tensor(name, count, side, side, 3)


async def test_images_are_joined_in_the_order_of_their_numbers() -> None:
    ctx = FakeContext()
    parts = {f"images.image{at}": _image(str(at), 1) for at in (10, 0, 2, 1)}
    value = await output("BatchImagesNode", ctx, **parts)
    assert ctx.calls[0].inputs == {"parts": [_image(str(at), 1) for at in (0, 1, 2, 10)]}
    assert value == Output(ctx.calls[0].id, "images")


async def test_masks_are_joined() -> None:
    ctx = FakeContext()
    await output(
        "BatchMasksNode", ctx, **{"masks.mask0": tensor("a", 1, 8, 8), "masks.mask1": tensor("b", 8, 8)}
    )
    assert ctx.functions() == ["mask.join"]


async def test_joined_latents_keep_the_noise_that_each_had() -> None:
    first = {"samples": tensor("a", 2, 4, 8, 8), "type": "x"}
    second = {"samples": tensor("b", 1, 4, 8, 8), "batch_index": [7]}
    latent = await output("BatchLatentsNode", **{"latents.latent0": first, "latents.latent1": second})
    assert (latent["batch_index"], latent["type"]) == ([0, 1, 7], "x")


def test_first_two_parts_are_needed_and_at_most_fifty_exist() -> None:
    node = BUILTIN.get("BatchImagesNode")
    assert node is not None
    assert node.dynamic_inputs is not None
    submitted = {f"images.image{at}": ["1", 0] for at in range(60)}
    specs = node.dynamic_inputs(submitted)
    assert [spec.name for spec in specs if spec.section == "required"] == ["images.image0", "images.image1"]
    assert len(specs) == 50


async def test_size_of_an_image_is_told() -> None:
    assert (await lower("GetImageSize", image=tensor("i", 3, 48, 64, 3))).outputs == (64, 48, 3)


async def test_size_of_an_image_that_is_being_made_is_waited_for() -> None:
    ctx = FakeContext(results={"image.invert": {"images": tensor("i", 1, 5, 7, 3)}})
    image = ctx.emit("image.invert", images=None).out("images")
    assert (await lower("GetImageSize", ctx, image=image)).outputs == (7, 5, 1)


async def test_images_are_divided_and_what_is_whole_stays_as_it_is() -> None:
    ctx = FakeContext()
    images = [_image("a", 2), _image("b", 3), _image("c", 1, side=16)]
    value = await output("RebatchImages", ctx, images=images, batch_size=[2])
    assert value == Items(
        (images[0], Output(ctx.calls[0].id, "images"), Output(ctx.calls[1].id, "images"), images[2])
    )
    assert ctx.calls[0].inputs == {"parts": [images[1]], "picks": [[0, 0, 2]]}
    assert ctx.calls[1].inputs == {"parts": [images[1]], "picks": [[0, 2, 3]]}


async def test_images_of_several_parts_come_into_one_batch() -> None:
    ctx = FakeContext()
    images = [_image("a", 1), _image("b", 3)]
    await output("RebatchImages", ctx, images=images, batch_size=[3])
    assert ctx.calls[0].inputs == {"parts": images, "picks": [[0, 0, 1], [1, 0, 2]]}


async def test_divided_latents_keep_their_noise_and_their_masks() -> None:
    ctx = FakeContext()
    mask = tensor("m", 1, 64, 64)
    latents = [
        {"samples": tensor("a", 2, 4, 8, 8)},
        {"samples": tensor("b", 1, 4, 8, 8), "noise_mask": mask},
        {"samples": tensor("c", 1, 4, 4, 4), "batch_index": [9]},
    ]
    value = await output("RebatchLatents", ctx, latents=latents, batch_size=[2])
    assert [latent["batch_index"] for latent in value.values] == [[0, 1], [2], [9]]
    assert ["noise_mask" in latent for latent in value.values] == [False, True, False]
    assert ctx.calls[1].inputs == {"parts": [latents[1]["samples"]], "masks": [mask], "picks": [[0, 0, 1]]}


async def test_list_holds_the_items_of_all_inputs() -> None:
    value = await output("CreateList", **{"inputs.input0": ["a"], "inputs.input1": ["b", "c"]})
    assert value == Items(("a", "b", "c"))


@pytest.mark.parametrize(("index", "item"), [(0, "a"), (2, "c"), (-1, "c")])
async def test_item_of_a_list_is_given(index: int, item: str) -> None:
    assert await output("GetItemFromList", list=["a", "b", "c"], index=[index]) == item


async def test_item_beyond_the_end_is_refused() -> None:
    with pytest.raises(PromptError, match="no item 3 in a list of 3"):
        await output("GetItemFromList", list=["a", "b", "c"], index=[3])


def test_lists_are_taken_and_given_as_such() -> None:
    for name in ("CreateList", "GetItemFromList", "RebatchImages", "RebatchLatents"):
        node = BUILTIN.get(name)
        assert node is not None
        assert node.input_is_list
        assert node.outputs[0].is_list == (name != "GetItemFromList")
