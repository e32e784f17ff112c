"""`node_helpers`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from PIL import Image

from comfyserverless.host.helpers.compositing import composite
from comfyserverless.host.helpers.conditioning import (
    conditioning_set_values,
    hasher,
    image_alpha_fix,
    pillow,
)


def test_values_are_set_in_copies() -> None:
    tensor = torch.zeros(1)
    before = [[tensor, {"a": 1, "l": [1]}]]
    after = conditioning_set_values(before, {"b": 2, "l": [2]}, append=True)
    assert after[0][0] is tensor
    assert after[0][1] == {"a": 1, "b": 2, "l": [1, 2]}
    assert before[0][1] == {"a": 1, "l": [1]}
    assert conditioning_set_values(before, {"l": [2]})[0][1]["l"] == [2]


def test_a_picture_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, format="PNG")
    half = buffer.getvalue()[: len(buffer.getvalue()) // 2]
    with pytest.raises(OSError, match="truncated"):
        Image.open(io.BytesIO(half)).load()
    opened = pillow(lambda data: _loaded(io.BytesIO(data)), half)
    assert opened.size == (64, 64)


def _loaded(file: io.BytesIO) -> Image.Image:
    picture = Image.open(file)
    picture.load()
    return picture


def test_digests_are_of_the_function_that_is_set() -> None:
    assert hasher()(b"").hexdigest().startswith("e3b0c442")


def test_a_source_gets_the_channels_of_its_destination() -> None:
    rgb, rgba = torch.zeros(1, 2, 2, 3), torch.zeros(1, 2, 2, 4)
    assert image_alpha_fix(rgb, rgba)[1].shape[-1] == 3
    assert image_alpha_fix(rgba, rgb)[1][0, 0, 0].tolist() == [0, 0, 0, 1]


def test_latents_are_put_on_each_other_cell_by_cell() -> None:
    destination, source = torch.zeros(1, 4, 4, 4), torch.ones(1, 4, 2, 2)
    put = composite(destination, source, 8, 16)
    assert put[0, 0].nonzero().tolist() == [[2, 1], [2, 2], [3, 1], [3, 2]]
    assert composite(destination, source, 3, 3, None, 1)[0, 0].nonzero().tolist() == [[3, 3]]
    half = torch.full((1, 2, 2), 0.5)
    assert composite(destination, source, 0, 0, half, 8)[0, 0, 0, 0] == 0.5


def test_nothing_of_this_needs_a_server(tmp_path: Path) -> None:
    assert composite(torch.zeros(2, 1, 4, 4), torch.ones(1, 1, 1, 1), 0, 0, resize_source=True).min() == 1
