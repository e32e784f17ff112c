"""Sounds in the formats that nodes save."""

from __future__ import annotations

import sys

import pytest
import torch

from comfyserverless.host.api.media.sound import encode_sound

SOUND = torch.sin(torch.arange(4410) / 10)[None]


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="flac, mp3, opus, not as wav"):
        encode_sound(SOUND, 44100, "wav", "128k", {})


def test_flac_needs_no_codec_library_and_others_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert encode_sound(SOUND, 44100, "flac", "128k", {}).startswith(b"fLaC")
    with pytest.raises(RuntimeError, match="saving sound as mp3 needs PyAV"):
        encode_sound(SOUND, 44100, "mp3", "128k", {})


@pytest.mark.parametrize(("kind", "begin"), [("flac", b"fLaC"), ("mp3", b"ID3"), ("opus", b"OggS")])
def test_codec_library_is_used_if_it_is_there(kind: str, begin: bytes) -> None:
    pytest.importorskip("av")
    content = encode_sound(SOUND, 44100, kind, "V0", {"prompt": "{}"})
    assert content.startswith(begin)
    assert b"prompt" in content
