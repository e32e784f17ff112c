"""Folder keys, search order and confinement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import Folders
from comfyserverless.core.errors import ConfigError, PromptError


def folders(base: Path, *models: Path, extra: tuple[Path, ...] = ()) -> Folders:
    for name in ("input", "output", "temp", "user", "custom_nodes"):
        (base / name).mkdir(exist_ok=True)
    return Folders(
        base=base,
        models=models or (base / "models",),
        input=base / "input",
        output=base / "output",
        temp=base / "temp",
        user=base / "user",
        custom_nodes=base / "custom_nodes",
        extra_model_paths=extra,
    )


def touch(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_names_are_relative_sorted_and_filtered_by_extension(tmp_path: Path) -> None:
    root = tmp_path / "models" / "checkpoints"
    for name in ("b.safetensors", "sub/a.ckpt", "notes.txt", ".git/x.safetensors"):
        touch(root / name)
    files = FolderPaths(folders(tmp_path))
    assert files.names("checkpoints") == ["b.safetensors", "sub/a.ckpt"]


def test_names_see_a_file_added_later_in_a_new_subfolder(tmp_path: Path) -> None:
    files = FolderPaths(folders(tmp_path))
    assert files.names("loras") == []
    touch(tmp_path / "models" / "loras" / "deep" / "x.safetensors")
    assert files.names("loras") == ["deep/x.safetensors"]


def test_first_models_root_wins_for_a_repeated_name(tmp_path: Path) -> None:
    first = touch(tmp_path / "one" / "vae" / "v.safetensors")
    touch(tmp_path / "two" / "vae" / "v.safetensors")
    files = FolderPaths(folders(tmp_path, tmp_path / "one", tmp_path / "two"))
    assert files.names("vae") == ["v.safetensors"]
    assert files.find("vae", "v.safetensors").path == str(first)


def test_text_encoders_are_found_in_the_legacy_directory_and_by_alias(tmp_path: Path) -> None:
    touch(tmp_path / "models" / "clip" / "t.safetensors")
    files = FolderPaths(folders(tmp_path))
    assert files.names("text_encoders") == files.names("clip") == ["t.safetensors"]
    assert "clip" not in list(files.keys())


def test_model_name_cannot_climb_out(tmp_path: Path) -> None:
    touch(tmp_path / "secret.safetensors")
    touch(tmp_path / "models" / "loras" / "a.safetensors")
    files = FolderPaths(folders(tmp_path))
    assert files.full_path("loras", "../../secret.safetensors") is None
    with pytest.raises(PromptError, match=r"secret.*loras"):
        files.find("loras", "../../secret.safetensors")


def test_replaced_file_has_another_identity(tmp_path: Path) -> None:
    path = touch(tmp_path / "models" / "loras" / "a.safetensors")
    files = FolderPaths(folders(tmp_path))
    before = files.find("loras", "a.safetensors")
    path.write_bytes(b"longer")
    assert files.find("loras", "a.safetensors") != before


def test_annotated_input_names_choose_the_base(tmp_path: Path) -> None:
    files = FolderPaths(folders(tmp_path))
    made = touch(tmp_path / "output" / "o.png")
    assert files.find_input("o.png [output]").path == str(made)
    assert not files.has_input("o.png")


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "link.png", "", "a\0b", "../secret.png [output]"]
)
def test_input_name_outside_its_base_does_not_exist(tmp_path: Path, name: str) -> None:
    files = FolderPaths(folders(tmp_path))
    touch(tmp_path / "secret.png")
    os.symlink(tmp_path / "secret.png", tmp_path / "input" / "link.png")
    assert not files.has_input(name)
    assert files.input_identity(name) is None
    with pytest.raises(PromptError):
        files.find_input(name)


def test_input_names_are_filtered_by_content(tmp_path: Path) -> None:
    files = FolderPaths(folders(tmp_path))
    for name in ("b.png", "a.webp", "x.latent", "t.txt"):
        touch(tmp_path / "input" / name)
    assert files.input_names("image") == ["a.webp", "b.png"]
    assert files.input_names("latent") == ["x.latent"]


def test_extra_paths_are_searched_and_the_default_section_comes_first(tmp_path: Path) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text(
        "other:\n  base_path: shared\n  loras: |\n    l1\n    l2\n  unet: dm\n"
        "mine:\n  is_default: true\n  loras: own\nempty:\n"
    )
    files = FolderPaths(folders(tmp_path, extra=(extra,)))
    paths = files.paths("loras")
    assert paths[0] == str(tmp_path / "own")
    assert paths[-2:] == [str(tmp_path / "shared" / "l1"), str(tmp_path / "shared" / "l2")]
    assert str(tmp_path / "shared" / "dm") in files.paths("diffusion_models")


@pytest.mark.parametrize("text", ["- a\n", "x: 3\n", "a: [b\n"])
def test_bad_extra_paths_file_is_named(tmp_path: Path, text: str) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text(text)
    with pytest.raises(ConfigError, match=r"extra\.yaml"):
        FolderPaths(folders(tmp_path, extra=(extra,)))
