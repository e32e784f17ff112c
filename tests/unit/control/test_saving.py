"""Names of saved files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from comfyserverless.control import saving
from comfyserverless.control.saving import Publisher, destination, remove_parts, remove_staged
from comfyserverless.core.errors import PromptError

NOW = time.struct_time((2026, 3, 4, 5, 6, 7, 2, 63, 0))


def stage(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_text(name)
    return [str(folder / name) for name in names]


def test_prefix_tokens_and_subfolder_are_resolved(tmp_path: Path) -> None:
    place = destination(tmp_path, "output", "a/%year%-%month%-%day%/x_%width%x%height%", (64, 32), NOW)
    assert (place.subfolder, place.name) == ("a/2026-03-04", "x_64x32")
    assert Path(place.directory) == tmp_path / "a" / "2026-03-04"
    assert Path(place.directory).is_dir()


@pytest.mark.parametrize(
    "prefix",
    ["../x", "a/../../x", "/etc/x", "", ".", "a\0b", "x" * 300, "x/" + "y" * 250, "a/" * 2000 + "x", "\ud800"],
)
def test_prefix_outside_the_folder_is_refused(tmp_path: Path, prefix: str) -> None:
    base = tmp_path / "output"
    base.mkdir()
    with pytest.raises(PromptError, match=r"[Ss]aving"):
        destination(base, "output", prefix, (0, 0), NOW)
    assert list(tmp_path.iterdir()) == [base]


def test_prefix_through_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PromptError, match="file/x"):
        destination(tmp_path, "output", "file/x", (0, 0), NOW)


def test_published_files_are_numbered_after_the_largest_existing_counter(tmp_path: Path) -> None:
    (tmp_path / "x_00007_.png").write_text("old")
    place = destination(tmp_path, "output", "x", (0, 0), NOW)
    publisher = Publisher()
    items = publisher.publish(place, stage(tmp_path, ".a_0.part", ".a_1.part"), "png")
    assert [item["filename"] for item in items] == ["x_00008_.png", "x_00009_.png"]
    assert items[0] == {"filename": "x_00008_.png", "subfolder": "", "type": "output"}
    assert (tmp_path / "x_00008_.png").read_text() == ".a_0.part"
    again = publisher.publish(place, stage(tmp_path, ".b_0.part"), "png")
    assert again[0]["filename"] == "x_00010_.png"
    assert (tmp_path / "x_00007_.png").read_text() == "old"


def test_publishing_never_replaces_a_file_that_appeared_meanwhile(tmp_path: Path) -> None:
    place = destination(tmp_path, "output", "x", (0, 0), NOW)
    publisher = Publisher()
    publisher.publish(place, stage(tmp_path, ".a_0.part"), "png")
    (tmp_path / "x_00002_.png").write_text("foreign")
    items = publisher.publish(place, stage(tmp_path, ".b_0.part"), "png")
    assert items[0]["filename"] == "x_00003_.png"
    assert (tmp_path / "x_00002_.png").read_text() == "foreign"


def test_counter_starts_again_in_a_cleared_folder(tmp_path: Path) -> None:
    place = destination(tmp_path, "output", "x", (0, 0), NOW)
    publisher = Publisher()
    publisher.publish(place, stage(tmp_path, ".a_0.part"), "png")
    (tmp_path / "x_00001_.png").unlink()
    assert publisher.publish(place, stage(tmp_path, ".b_0.part"), "png")[0]["filename"] == "x_00001_.png"


def test_batch_number_token_is_replaced_per_file(tmp_path: Path) -> None:
    place = destination(tmp_path, "output", "x%batch_num%", (0, 0), NOW)
    items = Publisher().publish(place, stage(tmp_path, ".a_0.part", ".a_1.part"), "png")
    assert [item["filename"] for item in items] == ["x0_00001_.png", "x1_00002_.png"]


def test_file_system_without_links_still_publishes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(saving.os, "link", refuse)
    (tmp_path / "x_00001_.png").write_text("old")
    place = destination(tmp_path, "output", "x", (0, 0), NOW)
    items = Publisher().publish(place, stage(tmp_path, ".a_0.part"), "png")
    assert items[0]["filename"] == "x_00002_.png"
    assert not (tmp_path / ".a_0.part").exists()


def test_only_staging_files_of_dead_servers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    live, dead = ".comfyserverless-0-7-a1-beef_0.part", ".comfyserverless-0-8-a1-beef_0.part"
    stage(tmp_path / "sub", live, dead, ".download_0.part", "keep.part", "x_00001_.png")
    remove_staged(tmp_path, {"comfyserverless-0-7-a1"}.__contains__)
    left = sorted(path.name for path in (tmp_path / "sub").iterdir())
    assert left == [live, ".download_0.part", "keep.part", "x_00001_.png"]


def test_parts_that_nobody_published_are_removed(tmp_path: Path) -> None:
    stage(tmp_path, ".a_0.part", ".a_1.part", ".ab_0.part", ".b_0.part")
    remove_parts(str(tmp_path), ".a")
    remove_parts(str(tmp_path / "gone"), ".a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ab_0.part", ".b_0.part"]


def test_failed_publication_leaves_no_part_and_no_empty_file(tmp_path: Path) -> None:
    place = destination(tmp_path, "output", "x", (0, 0), NOW)
    (first, lost, last) = stage(tmp_path, ".a_0.part", ".a_1.part", ".a_2.part")
    Path(lost).unlink()
    with pytest.raises(PromptError, match="No such file"):
        Publisher().publish(place, [first, lost, last], "png")
    assert [path.name for path in tmp_path.iterdir()] == ["x_00001_.png"]
