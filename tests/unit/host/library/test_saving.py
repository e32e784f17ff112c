"""Save as ComfyUI's nodes do, from subclasses of packs, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.support.pack_modules import RememberingBridge, module, pack_modules

PICTURES = torch.stack([torch.zeros(4, 6, 3), torch.ones(4, 6, 3)])


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as made:
        made.answers["object_info"] = {}
        yield made


def test_pictures_are_numbered_and_hold_the_graph(bridge: RememberingBridge) -> None:
    class Own(module("nodes").SaveImage):  # type: ignore[misc]
        """A pack's own."""

        def __init__(self) -> None:
            super().__init__()
            self.prefix_append = "_own"

    extra = {"workflow": {"nodes": []}}
    told: Any = Own().save_images(PICTURES, "a/x", prompt={"1": {}}, extra_pnginfo=extra)
    items = told["ui"]["images"]
    assert [each["filename"] for each in items] == ["x_own_00001_.png", "x_own_00002_.png"]
    assert {(each["subfolder"], each["type"]) for each in items} == {("a", "output")}
    with Image.open(bridge.places.output / "a" / "x_own_00002_.png") as picture:
        assert picture.getpixel((0, 0)) == (255, 255, 255)
        assert json.loads(picture.info["workflow"]) == extra["workflow"]


def test_previews_have_names_of_their_own_in_the_temporary_folder(bridge: RememberingBridge) -> None:
    names = [module("nodes").PreviewImage().save_images(PICTURES[:1])["ui"]["images"][0] for _ in range(2)]
    assert {each["type"] for each in names} == {"temp"}
    assert names[0]["filename"] != names[1]["filename"]
    assert (bridge.places.temp / names[0]["filename"]).is_file()


def test_loader_lists_pictures_and_tells_a_change(bridge: RememberingBridge) -> None:
    loader = module("nodes").LoadImage
    (bridge.places.input / "b.png").write_bytes(b"1")
    (bridge.places.input / "a.txt").write_bytes(b"1")
    assert loader.INPUT_TYPES()["required"]["image"][0] == ["b.png"]
    before = loader.IS_CHANGED("b.png")
    (bridge.places.input / "b.png").write_bytes(b"2")
    assert loader.IS_CHANGED("b.png") != before
    assert loader.VALIDATE_INPUTS("b.png") is True
    assert loader.VALIDATE_INPUTS("c.png") == "Invalid image file: c.png"
