"""Images for the websocket."""

from __future__ import annotations

import io

import torch
from PIL import Image

from comfyserverless.functions.images.encoding import ImageEncode


def test_one_image_of_a_batch_is_a_png() -> None:
    images = torch.stack([torch.zeros(4, 6, 3), torch.ones(4, 6, 3)])
    png = ImageEncode().execute({}, images=images, index=1)["preview"]
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.size, image.getpixel((0, 0))) == ("PNG", (6, 4), (255, 255, 255))
