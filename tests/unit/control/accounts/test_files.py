"""A tenant sees its own folders, and of the models those that it may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comfyserverless.control.accounts.files import TenantFiles
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import Folders
from comfyserverless.core.errors import PromptError


@pytest.fixture
def shared(tmp_path: Path) -> FolderPaths:
    for name in ("checkpoints/a.ckpt", "checkpoints/b.ckpt", "embeddings/x/e.pt", "embeddings/f.pt"):
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    places = {name: tmp_path / name for name in ("input", "output", "temp", "user")}
    return FolderPaths(
        Folders(base=tmp_path, models=(tmp_path / "models",), custom_nodes=tmp_path / "c", **places)
    )


def open_files(shared: FolderPaths, *allowed: str, name: str = "alice") -> TenantFiles:
    bases = {kind: shared.base(kind) / name for kind in ("input", "output", "temp")}
    for folder in bases.values():
        folder.mkdir(parents=True, exist_ok=True)
    return TenantFiles(shared, bases, allowed or None, shared.base("temp") / ".embeddings" / name)


def test_input_of_another_tenant_does_not_exist_also_through_a_link(shared: FolderPaths) -> None:
    bob, alice = open_files(shared, name="bob"), open_files(shared)
    (bob.base("input") / "b.png").write_bytes(b"1")
    (alice.base("input") / "link.png").symlink_to(bob.base("input") / "b.png")
    for name in ("b.png", "../bob/b.png", "link.png", str(bob.base("input") / "b.png")):
        assert not alice.has_input(name)
    assert bob.input_names("image") == ["b.png"]


def test_model_that_a_tenant_saved_is_its_own(shared: FolderPaths) -> None:
    saved = shared.base("output") / "bob" / "checkpoints" / "mine.ckpt"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(b"1")
    assert open_files(shared).names("checkpoints") == ["a.ckpt", "b.ckpt"]
    assert open_files(shared, name="bob").names("checkpoints") == ["a.ckpt", "b.ckpt", "mine.ckpt"]
    assert open_files(shared, "vae/*", name="bob").names("checkpoints") == ["mine.ckpt"]


@pytest.mark.parametrize("name", ["b.ckpt", "a/../b.ckpt", "/b.ckpt", "./b.ckpt"])
def test_model_that_is_not_allowed_does_not_exist(shared: FolderPaths, name: str) -> None:
    files = open_files(shared, "checkpoints/a*")
    assert files.names("checkpoints") == ["a.ckpt"]
    assert files.full_path("checkpoints", name) is None
    with pytest.raises(PromptError, match="not found"):
        files.find("checkpoints", name)


def test_pattern_may_use_an_alias(shared: FolderPaths, tmp_path: Path) -> None:
    (tmp_path / "models/unet").mkdir()
    (tmp_path / "models/unet/u.ckpt").write_bytes(b"1")
    assert open_files(shared, "unet/*").names("diffusion_models") == ["u.ckpt"]


def test_workers_search_only_the_textual_inversions_that_are_allowed(shared: FolderPaths) -> None:
    assert open_files(shared).embedding_folders() == shared.embedding_folders()
    files = open_files(shared, "embeddings/x/*")
    (folder,) = files.embedding_folders()
    found = [
        os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
    ]
    assert found == ["x/e.pt"]
    assert Path(folder, "x/e.pt").read_bytes() == b"1"


def test_links_follow_what_is_there(shared: FolderPaths, tmp_path: Path) -> None:
    files = open_files(shared, "embeddings/*")
    files.embedding_folders()
    gone = tmp_path / "models/embeddings/f.pt"
    gone.unlink()
    os.utime(gone.parent, ns=(1, 1))
    (folder,) = files.embedding_folders()
    assert not os.path.lexists(Path(folder, "f.pt"))
    assert Path(folder, "x/e.pt").exists()
