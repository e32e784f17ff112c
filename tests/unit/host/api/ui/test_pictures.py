"""Pictures that nodes save: where they are, what they show, and what they carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from comfyserverless.host.api.ui.pictures import ImageSaveHelper
from tests.support.pack_modules import RememberingBridge, module, pack_modules
from tests.unit.host.api.ui.looking import look

PROMPT = {"1": {"class_type": "X", "inputs": {"text": "ü"}}}
NODE = SimpleNamespace(hidden=SimpleNamespace(prompt=PROMPT, extra_pnginfo={"workflow": {"nodes": []}}))
BATCH = torch.stack([torch.full((4, 6, 3), level) for level in (0.0, 0.5, 1.0)])


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as bridge:
        yield bridge


def test_pictures_are_numbered_below_the_folder_of_whoever_runs(
    bridge: RememberingBridge, tmp_path: Path
) -> None:
    ui = ImageSaveHelper.get_save_images_ui(BATCH, "sub/pic_%width%x%height%", NODE).as_dict()
    names = [f"pic_6x4_{number:05}_.png" for number in (1, 2, 3)]
    assert ui == {"images": [{"filename": name, "subfolder": "sub", "type": "output"} for name in names]}
    levels = [look(tmp_path / "output" / "sub" / name).corner for name in names]
    assert levels == [(0, 0, 0), (127, 127, 127), (255, 255, 255)]


def test_next_save_goes_on_counting_and_takes_no_name_that_appeared(
    bridge: RememberingBridge, tmp_path: Path
) -> None:
    ImageSaveHelper.save_images(BATCH[:1], "a", "output", None)
    (tmp_path / "output" / "a_00003_.png").write_bytes(b"theirs")
    saved = ImageSaveHelper.save_images(BATCH[:1], "a", "output", None)
    assert [result.filename for result in saved] == ["a_00004_.png"]
    assert (tmp_path / "output" / "a_00003_.png").read_bytes() == b"theirs"


def test_what_cannot_be_saved_leaves_nothing_behind(bridge: RememberingBridge, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="codec configuration"):
        ImageSaveHelper.save_images(BATCH, "a", "output", None, compress_level=77)
    assert list((tmp_path / "output").iterdir()) == []


def test_batch_number_is_part_of_the_name(bridge: RememberingBridge) -> None:
    saved = ImageSaveHelper.save_images(BATCH[:2], "n%batch_num%", "temp", None)
    assert [(each.filename, each.type) for each in saved] == [
        ("n0_00001_.png", "temp"),
        ("n1_00002_.png", "temp"),
    ]


def test_png_carries_prompt_and_workflow(bridge: RememberingBridge, tmp_path: Path) -> None:
    (saved,) = ImageSaveHelper.save_images(BATCH[:1], "a", "output", NODE)
    texts = look(tmp_path / "output" / saved.filename).texts
    assert json.loads(texts["prompt"]) == PROMPT
    assert json.loads(texts["workflow"]) == {"nodes": []}


def test_nothing_is_carried_if_it_is_switched_off(tmp_path: Path) -> None:
    with pack_modules(tmp_path, flags={"disable_metadata": True}):
        (saved,) = ImageSaveHelper.save_images(BATCH[:1], "a", "output", NODE)
    assert "prompt" not in look(tmp_path / "output" / saved.filename).texts


def test_animated_png_has_all_pictures_and_its_texts_after_them(
    bridge: RememberingBridge, tmp_path: Path
) -> None:
    ui = ImageSaveHelper.get_save_animated_png_ui(BATCH, "anim", NODE, fps=5.0, compress_level=1).as_dict()
    assert ui["animated"] == [True]
    path = tmp_path / "output" / ui["images"][0]["filename"]
    assert look(path).frames == 3
    content = path.read_bytes()
    assert content.index(b"comfprompt\0") > content.index(b"IDAT")


def test_webp_keeps_its_texts_in_exif(bridge: RememberingBridge, tmp_path: Path) -> None:
    ui = ImageSaveHelper.get_save_animated_webp_ui(
        BATCH, "anim", NODE, fps=4.0, lossless=True, quality=50, method=0
    )
    image = look(tmp_path / "output" / ui.as_dict()["images"][0]["filename"])
    assert (image.format, image.frames) == ("WEBP", 3)
    exif = image.exif
    assert exif[0x0110] == f"prompt:{json.dumps(PROMPT)}"
    assert exif[0x010F] == 'workflow:{"nodes": []}'


def test_prefix_that_leaves_the_folder_is_refused(bridge: RememberingBridge) -> None:
    with pytest.raises(Exception, match="outside"):
        ImageSaveHelper.save_images(BATCH[:1], "../../away", "output", None)
    with pytest.raises(ValueError, match="no folder to save to"):
        ImageSaveHelper.save_images(BATCH[:1], "a", "attic", None)


def test_pack_may_have_changed_where_files_go(bridge: RememberingBridge, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    module("folder_paths").set_output_directory(str(tmp_path / "elsewhere"))
    (saved,) = ImageSaveHelper.save_images(BATCH[:1], "a", "output", None)
    assert (tmp_path / "elsewhere" / saved.filename).is_file()
