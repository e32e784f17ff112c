"""Times of layers, kept between runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from comfyserverless.models.resident.profiles import Profile, ProfileStore
from comfyserverless.residency.prefix import uniform_prefix


def settled(load_ns: list[int], compute_ns: list[int]) -> Profile:
    profile = Profile.empty(len(load_ns))
    for layer, each in enumerate(load_ns):
        profile.saw_load(layer, each)
    for _ in range(3):
        profile.saw_run(compute_ns, has_waited=False)
    return profile


def test_the_prefix_follows_from_both_times_and_is_unknown_before() -> None:
    profile = Profile.empty(2)
    profile.saw_run([5, 5], has_waited=True)
    assert profile.prefix() is None
    profile.saw_load(0, 9)
    profile.saw_load(1, 4)
    assert (profile.prefix(), profile.is_settled) == (1, False)
    for _ in range(3):
        profile.saw_run([4, 9], has_waited=False)
    assert (profile.compute_ns, profile.is_settled) == ([4, 5], True)
    assert profile.prefix() == 2, "the least compute that was seen hides the least"


def test_uniform_layers_have_the_prefix_of_the_papers_formula_for_a_compute_a_tenth_faster() -> None:
    assert settled([300] * 24, [100] * 24).prefix() == uniform_prefix(24, 300, 90) == 18
    assert uniform_prefix(24, 300, 100) == 17


def test_a_profile_comes_back_for_the_same_model_device_and_link_only(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "new", "cpu x 1")
    store.save("unet a", settled([3, 3], [1, 1]))
    back = store.load("unet a", 2)
    assert (back.load_ns, back.compute_ns, back.is_settled) == ([3, 3], [1, 1], True)
    strangers = (
        ProfileStore(tmp_path / "new", "cpu x 2").load("unet a", 2),
        ProfileStore(tmp_path / "new", "cpu x 1", link="8 Gbit/s").load("unet a", 2),
        store.load("unet b", 2),
        store.load("unet a", 3),
        ProfileStore(None, "cpu x 1").load("unet a", 2),
    )
    assert not any(profile.is_settled for profile in strangers)
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]


@pytest.mark.parametrize("content", ["", "[]", '{"load_ns": [1]}', '{"load_ns": [-1], "compute_ns": [1]}'])
def test_a_damaged_profile_is_measured_anew(tmp_path: Path, content: str) -> None:
    store = ProfileStore(tmp_path, "cpu")
    store.save("m", settled([3], [1]))
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["identity"][0] == "m"
    path.write_text(content)
    assert not store.load("m", 1).is_settled


def test_a_folder_that_cannot_be_written_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        ProfileStore(tmp_path / "file" / "below", "cpu").save("m", settled([3], [1]))
    assert "profile of m cannot be written" in caplog.text
