"""How prompts choose previews, and the files that are found for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.execution.previews import preview_method, preview_of
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import Folders


@pytest.mark.parametrize("wanted", ["none", "auto", "latent2rgb", "taesd"])
def test_prompt_chooses_over_the_server(wanted: str) -> None:
    assert preview_method(wanted, "latent2rgb") == wanted


@pytest.mark.parametrize("wanted", [None, "default", "TAESD", "movie", "", 1, ["taesd"], {"a": 1}])
def test_what_is_no_method_leaves_it_to_the_server(wanted: Any) -> None:
    for default in ("none", "taesd"):
        assert preview_method(wanted, default) == default


def paths(base: Path, *names: str) -> FolderPaths:
    folder = base / "models" / "vae_approx"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    return FolderPaths(Folders(base, (base / "models",), base, base, base, base, base))


def test_no_previews_ask_for_nothing_and_auto_is_latent2rgb(tmp_path: Path) -> None:
    files = paths(tmp_path, "taesd_decoder.pth")
    assert preview_of("none", 512, files) is None
    for method in ("auto", "latent2rgb"):
        assert preview_of(method, 256, files) == {"size_px": 256, "decoders": None}


def test_decoders_are_the_first_files_whose_names_begin_as_comfyui_expects(tmp_path: Path) -> None:
    names = ("taesd_decoder_v2.pth", "taesd_decoder.safetensors", "taesdxl_decoder.pth", "taesdxl_encoder.pth")
    wish = preview_of("taesd", 512, paths(tmp_path, *names, "more/taef1_decoder.pth"))
    found = {name: Path(file.path).name for name, file in wish["decoders"].items()}
    assert found == {"taesd": "taesd_decoder.safetensors", "taesdxl": "taesdxl_decoder.pth"}


def test_decoder_that_is_gone_by_now_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = paths(tmp_path, "taesd_decoder.pth")
    monkeypatch.setattr(files, "names", lambda _: ["taesd_decoder.pth", "taesdxl_decoder.pth"])
    assert list(preview_of("taesd", 512, files)["decoders"]) == ["taesd"]
