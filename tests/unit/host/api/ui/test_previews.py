"""What nodes show without keeping it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from comfyserverless.host.api.ui.previews import (
    PreviewAudio,
    PreviewImage,
    PreviewMask,
    PreviewText,
    PreviewUI3D,
    PreviewVideo,
)
from comfyserverless.host.api.ui.results import SavedResult
from tests.support.pack_modules import pack_modules
from tests.unit.host.api.ui.looking import look

NODE = SimpleNamespace(hidden=SimpleNamespace(prompt={"1": {}}, extra_pnginfo=None))


@pytest.fixture(autouse=True)
def temp(tmp_path: Path) -> Iterator[Path]:
    with pack_modules(tmp_path):
        yield tmp_path / "temp"


def test_picture_goes_to_the_temp_folder_with_its_prompt(temp: Path) -> None:
    ui = PreviewImage(torch.rand(2, 4, 4, 3), cls=NODE).as_dict()
    assert ui["animated"] == [False]
    assert [item["type"] for item in ui["images"]] == ["temp", "temp"]
    assert look(temp / ui["images"][0]["filename"]).texts["prompt"] == '{"1": {}}'


def test_two_previews_have_different_names_whatever_the_seed() -> None:
    random.seed(0)
    state = random.getstate()
    first = PreviewImage(torch.zeros(1, 2, 2, 3)).values[0].filename
    random.seed(0)
    second = PreviewImage(torch.zeros(1, 2, 2, 3)).values[0].filename
    assert first.rpartition("_0")[0] != second.rpartition("_0")[0]
    assert random.getstate() == state


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 5), (1, 1, 3, 5)])
def test_mask_is_shown_in_grey(temp: Path, shape: tuple[int, ...]) -> None:
    (item,) = PreviewMask(torch.ones(shape)).as_dict()["images"]
    image = look(temp / item["filename"])
    assert (image.size, image.corner) == ((5, 3), (255, 255, 255))


def test_sound_is_saved_as_flac(temp: Path) -> None:
    (item,) = PreviewAudio({"waveform": torch.zeros(1, 1, 8000), "sample_rate": 8000}, cls=NODE).as_dict()[
        "audio"
    ]
    content = (temp / item["filename"]).read_bytes()
    assert content.startswith(b"fLaC")
    assert b'prompt={"1": {}}' in content


def test_texts_and_films_are_passed_on() -> None:
    film = SavedResult("a.mp4", "sub", "output")
    assert PreviewText("hello").as_dict() == {"text": ["hello"]}
    assert PreviewVideo([film]).as_dict() == {"images": [film], "animated": [True]}


def test_model_is_shown_before_its_background(temp: Path) -> None:
    ui = PreviewUI3D("a.glb", {"zoom": 1}, bg_image=torch.ones(1, 2, 2, 3)).as_dict()
    model, camera, background = ui["result"]
    assert (model, camera) == ("a.glb", {"zoom": 1})
    assert look(temp.parent / background).corner == (255, 255, 255)
    assert PreviewUI3D("a.glb", None).as_dict() == {"result": ["a.glb", None, None]}
