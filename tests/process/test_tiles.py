"""Work in tiles on the real server: each tile is a turn of its own, and the picture is that of one process."""

from __future__ import annotations

import io
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from comfyserverless.core.values import FileRef, UpscaleRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.tiles.blending import Tiling, run_in_tiles
from tests.support.client import Client
from tests.support.parity import INPUTS
from tests.support.server import RunningServer

WIDTH, HEIGHT = 80, 544
UPSCALER = "esrgan_x2_tiny.safetensors"
LEVELS = 255


def node(name: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": name, "inputs": inputs}


PROMPT = {
    "1": node("LoadImage", image="golden_128.png"),
    "2": node(
        "ImageScale",
        image=["1", 0],
        upscale_method="nearest-exact",
        width=WIDTH,
        height=HEIGHT,
        crop="disabled",
    ),
    "3": node("UpscaleModelLoader", model_name=UPSCALER),
    "4": node("ImageUpscaleWithModel", upscale_model=["3", 0], image=["2", 0]),
    "5": node("SaveImage", images=["4", 0], filename_prefix="large"),
}


async def test_a_picture_larger_than_a_tile_is_blended_from_several(
    server: RunningServer, tiny_models: Path
) -> None:
    shutil.copy(INPUTS / "golden_128.png", server.folder("input") / "golden_128.png")
    async with Client(server.url) as client:
        run = await client.run(PROMPT)
        assert run.outcome == "execution_success", run.messages[-3:]
        with Image.open(io.BytesIO(await client.image(run.images()[0]))) as image:
            got = np.asarray(image).astype(np.int16)
    with Image.open(INPUTS / "golden_128.png") as image:
        pixels = torch.from_numpy(np.asarray(image.convert("RGB")).astype(np.float32) / LEVELS)
    x = functional.interpolate(pixels.movedim(-1, 0)[None], size=(HEIGHT, WIDTH), mode="nearest-exact")
    upscaler = ModelPool().upscaler(UpscaleRef(FileRef(str(tiny_models / "upscale_models" / UPSCALER))))
    larger = run_in_tiles(x, upscaler.upscale, [Tiling(512, 512, 32)], Fraction(2))
    expected = (larger[0].movedim(0, -1) * LEVELS).numpy().astype(np.int16)
    assert got.shape == (2 * HEIGHT, 2 * WIDTH, 3)
    assert np.abs(got - expected).max() <= 1
