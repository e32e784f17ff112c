"""Previews as JPEG bytes."""

from __future__ import annotations

import io

import pytest
import torch
from PIL import Image

from comfyserverless.functions.preview import encode_preview


@pytest.mark.parametrize(
    ("cells", "size"),
    [((8, 8), (512, 512)), ((4, 8), (512, 256)), ((2048, 2), (1, 512)), ((2, 4096), (512, 1))],
)
def test_the_longer_side_of_a_preview_is_fixed_and_the_shorter_one_is_never_lost(
    cells: tuple[int, int], size: tuple[int, int]
) -> None:
    jpeg = encode_preview(torch.zeros(*cells, 3, dtype=torch.uint8), 512)
    assert Image.open(io.BytesIO(jpeg)).size == size
