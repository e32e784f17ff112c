"""Files of textual inversions."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from comfyserverless.models.text.embeddings import find_embedding_file, load_embedding


def test_a_name_finds_its_file_with_or_without_suffix_and_in_subfolders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.safetensors", "sub/b.pt"):
        (tmp_path / name).write_bytes(b"x")
    folders = (str(tmp_path / "gone"), str(tmp_path))
    assert find_embedding_file(folders, "a") == str(tmp_path / "a.safetensors")
    assert find_embedding_file(folders, "a.safetensors") == str(tmp_path / "a.safetensors")
    assert find_embedding_file(folders, "sub/b") == str(tmp_path / "sub/b.pt")
    assert find_embedding_file(folders, "c") is None


@pytest.mark.parametrize(
    "name", ["../secret", "../secret.pt", "{root}/secret.pt", "sub/../../secret", "a\0b", "\ud800"]
)
def test_a_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "embeddings"
    inside.mkdir()
    (tmp_path / "secret.pt").write_bytes(b"x")
    assert find_embedding_file((str(inside),), name.format(root=tmp_path)) is None


def test_a_link_in_the_folder_is_followed_as_for_every_other_model(tmp_path: Path) -> None:
    inside = tmp_path / "embeddings"
    inside.mkdir()
    (tmp_path / "kept_elsewhere.pt").write_bytes(b"x")
    (inside / "link.pt").symlink_to(tmp_path / "kept_elsewhere.pt")
    assert find_embedding_file((str(inside),), "link") == str(inside / "link.pt")


def test_each_text_encoder_gets_its_own_vectors(tmp_path: Path) -> None:
    save_file({"clip_l": torch.ones(2, 4), "clip_g": torch.zeros(3, 6)}, tmp_path / "both.safetensors")
    for key, shape in (("clip_l", (2, 4)), ("clip_g", (3, 6))):
        vectors = load_embedding((str(tmp_path),), "both", key)
        assert vectors is not None
        assert vectors.shape == shape


def test_a_pickled_file_of_the_first_tools_loads(tmp_path: Path) -> None:
    torch.save({"string_to_param": {"*": torch.ones(2, 4)}, "name": "old", "step": 5}, tmp_path / "old.pt")
    vectors = load_embedding((str(tmp_path),), "old", "clip_l")
    assert vectors is not None
    assert vectors.tolist() == torch.ones(2, 4).tolist()


def test_a_damaged_file_is_logged_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"garbage")
    with caplog.at_level(logging.WARNING):
        assert load_embedding((str(tmp_path),), "bad", "clip_l") is None
    assert "'bad' is ignored" in caplog.text
