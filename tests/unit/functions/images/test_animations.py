"""Animated files and files with 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.images.animations import ImageSaveApng, ImageSaveDeep, ImageSaveWebp

_METADATA = {"prompt": '{"1": 2}', "workflow": "{}"}


def _place(folder: Path) -> dict[str, Any]:
    return {"directory": str(folder / "sub"), "stem": ".s", "metadata": _METADATA}


def _gray(*values: float, channels: int = 3) -> torch.Tensor:
    return torch.tensor(values).reshape(-1, 1, 1, 1).expand(-1, 4, 6, channels)


def test_webp_has_all_frames_and_the_graph(tmp_path: Path) -> None:
    given = {
        "images": _gray(0.0, 0.5, 1.0),
        "frames_per_s": 5.0,
        "is_lossless": True,
        "quality": 80,
        "effort": 0,
    }
    (path,) = ImageSaveWebp().execute({}, **given, **_place(tmp_path))["files"]
    with Image.open(path) as image:
        assert (image.format, image.n_frames, image.size) == ("WEBP", 3, (6, 4))  # type: ignore[attr-defined]
        assert image.getexif()[0x0110] == 'prompt:{"1": 2}'
        assert image.getexif()[0x010F] == "workflow:{}"
        image.seek(1)
        assert image.convert("RGB").getpixel((0, 0)) == (127, 127, 127)
        assert image.info["duration"] == 200


def test_apng_has_all_frames_and_the_graph(tmp_path: Path) -> None:
    place = _place(tmp_path)
    given = {"images": _gray(0.0, 1.0), "frames_per_s": 4.0, "compress_level": 4}
    (path,) = ImageSaveApng().execute({}, **given, **place)["files"]
    with Image.open(path) as image:
        assert (image.format, image.n_frames) == ("PNG", 2)  # type: ignore[attr-defined]
    assert b'comfprompt\0{"1": 2}' in Path(path).read_bytes()


@pytest.mark.parametrize(("channels", "mode"), [(1, "I;16"), (3, "RGB"), (4, "RGBA")])
def test_deep_png_is_read_by_others(tmp_path: Path, channels: int, mode: str) -> None:
    place = _place(tmp_path)
    given = {"images": _gray(0.0, 0.25, channels=channels), "compress_level": 4}
    files = ImageSaveDeep().execute({}, **given, **place)["files"]
    assert [Path(file).name for file in files] == [".s_0.part", ".s_1.part"]
    with Image.open(files[1]) as image:
        assert (image.mode, image.size) == (mode, (6, 4))
        assert image.info["prompt"] == _METADATA["prompt"]
        pixel = image.getpixel((5, 3))
    assert pixel == (16384 if channels == 1 else (64,) * channels)  # Pillow reads 16-bit colours as 8 bits


def test_deep_png_of_two_channels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="not 2"):
        ImageSaveDeep().execute({}, images=_gray(0.0, channels=2), compress_level=4, **_place(tmp_path))
