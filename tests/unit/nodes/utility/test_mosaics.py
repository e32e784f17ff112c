"""Tiles as a list."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import output


async def _split(ctx: FakeContext, width: int, height: int, tile: int, overlap: int) -> Any:
    given = {"tile_width": tile, "tile_height": tile, "overlap": overlap}
    return await output("SplitImageToTileList", ctx, image=tensor("i", 1, height, width, 3), **given)


async def test_tiles_overlap_and_the_last_one_ends_with_the_image() -> None:
    ctx = FakeContext()
    value = await _split(ctx, width=200, height=64, tile=100, overlap=20)
    assert [(call.inputs["x"], call.inputs["y"]) for call in ctx.calls] == [(0, 0), (80, 0), (100, 0)]
    assert {(call.inputs["width"], call.inputs["height"]) for call in ctx.calls} == {(100, 64)}
    assert len(value.values) == 3


async def test_tiles_are_put_where_they_were_taken_from() -> None:
    ctx = FakeContext()
    tiles = [tensor(str(at), 1, 100, 100, 3) for at in range(4)]
    given = {"image_list": tiles, "final_width": [180], "final_height": [180], "overlap": [20]}
    await output("ImageMergeTileList", ctx, **given)
    assert ctx.calls[0].inputs["boxes"] == [[0, 0], [80, 0], [0, 80], [80, 80]]


async def test_number_of_tiles_that_does_not_fit_is_refused() -> None:
    given = {"final_width": [180], "final_height": [180], "overlap": [20]}
    with pytest.raises(PromptError, match="has 4 tiles of 100x100"):
        await output("ImageMergeTileList", image_list=[tensor("t", 1, 100, 100, 3)] * 3, **given)
    with pytest.raises(PromptError, match="no tiles"):
        await output("ImageMergeTileList", image_list=[], **given)


async def test_too_many_tiles_are_refused() -> None:
    with pytest.raises(PromptError, match="tiles; 4096 are possible"):
        await _split(FakeContext(), width=4096, height=4096, tile=64, overlap=63)
    assert len((await _split(FakeContext(), width=70, height=64, tile=64, overlap=4096)).values) == 7


def test_lists_are_given_and_taken() -> None:
    split, merge = BUILTIN.get("SplitImageToTileList"), BUILTIN.get("ImageMergeTileList")
    assert split is not None
    assert merge is not None
    assert split.outputs[0].is_list
    assert merge.input_is_list
