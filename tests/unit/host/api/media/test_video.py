"""Films."""

from __future__ import annotations

import io
import json
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from comfyserverless.host.api.media.components import VideoCodec, VideoComponents, VideoContainer
from comfyserverless.host.api.media.video import VideoFromComponents, VideoFromFile


def _film() -> VideoFromComponents:
    images = torch.linspace(0, 1, 12)[:, None, None, None].expand(12, 32, 48, 3)
    sound = {"waveform": torch.sin(torch.arange(16000) / 10)[None, None], "sample_rate": 8000}
    return VideoFromComponents(VideoComponents(images, Fraction(6), sound))


def test_film_of_pictures_knows_its_sizes_without_a_codec() -> None:
    film = _film()
    assert (film.get_dimensions(), film.get_duration(), film.get_frame_count()) == ((48, 32), 2.0, 12)
    assert film.get_frame_rate() == 6


def test_part_of_a_film_has_its_pictures_and_its_sound() -> None:
    part = _film().as_trimmed(0.5, 1.0)
    assert part is not None
    parts = part.get_components()
    assert len(parts.images) == 6
    assert parts.images[0, 0, 0, 0] == pytest.approx(3 / 11)
    assert parts.audio["waveform"].shape[-1] == 8000
    assert _film().as_trimmed(1.5, 2.0, strict_duration=True) is None
    assert _film().as_trimmed(5.0) is None


def test_words_for_formats_can_be_offered_and_unknown_ones_are_refused() -> None:
    assert (VideoCodec.as_input(), VideoContainer.as_input()) == (["auto", "h264"], ["auto", "mp4"])
    assert VideoContainer.get_extension("auto") == "mp4"
    with pytest.raises(ValueError, match="avi"):
        _film().save_to(io.BytesIO(), format="avi")  # type: ignore[arg-type]


def test_settings_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="not with bit_depth, color_space"):
        _film().save_to(io.BytesIO(), crf=10, bit_depth=10, color_space="bt709")


def test_saving_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(RuntimeError, match="saving a film needs PyAV, which is not installed: pip install av"):
        _film().save_to(io.BytesIO())
    with pytest.raises(RuntimeError, match="reading a film needs PyAV"):
        VideoFromFile("x.mp4").get_dimensions()


def test_saved_film_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("av")
    path = str(tmp_path / "a.mp4")
    _film().save_to(path, metadata={"prompt": {"1": {}}})
    film = VideoFromFile(path)
    assert (film.get_dimensions(), film.get_frame_count(), film.get_frame_rate()) == ((48, 32), 12, 6)
    assert film.get_duration() == pytest.approx(2.0, abs=0.1)
    parts = film.get_components()
    # H.264 loses a little: two levels of 256.
    assert torch.allclose(parts.images[:, 8, 8, 0], torch.linspace(0, 1, 12), atol=0.02)
    assert parts.metadata is not None
    assert json.loads(parts.metadata["prompt"]) == {"1": {}}
    copy = io.BytesIO()
    film.save_to(copy, metadata={"workflow": {}})
    assert (VideoFromFile(copy).get_components().metadata or {})["workflow"] == "{}"
    part = film.as_trimmed(0.5, 1.0)
    assert part is not None
    assert len(part.get_components().images) == 6
