"""FLAC files that are written without a codec library: read back by a small decoder of this test."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import torch

from comfyserverless.host.api.media.flac import BLOCK_SAMPLES, encode_flac


def _crc(data: bytes, polynomial: int, bits: int) -> int:
    """Divide bit by bit, as the definition says."""
    crc, top, mask = 0, 1 << (bits - 1), (1 << bits) - 1
    for byte in data:
        crc ^= byte << (bits - 8)
        for _ in range(8):
            crc = (crc << 1 ^ polynomial if crc & top else crc << 1) & mask
    return crc


def _decode(data: bytes) -> tuple[np.ndarray, int, dict[str, str]]:
    """Return samples [C, T], rate and comments of a file with verbatim blocks; checks every checksum."""
    assert data[:4] == b"fLaC"
    info = data[8:42]
    packed = int.from_bytes(info[10:18], "big")
    rate, channels, count = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    size = int.from_bytes(data[43:46], "big")
    assert data[42] == 0x84
    comments, at = data[46 : 46 + size], 46 + size
    vendor = struct.unpack_from("<I", comments)[0]
    (entries,) = struct.unpack_from("<I", comments, 4 + vendor)
    position, texts = 8 + vendor, {}
    for _ in range(entries):
        (length,) = struct.unpack_from("<I", comments, position)
        key, _, text = comments[position + 4 : position + 4 + length].decode().partition("=")
        texts[key], position = text, position + 4 + length
    blocks, number, left = [], 0, count
    while left:
        samples = min(left, BLOCK_SAMPLES)
        frame = at
        assert data[at : at + 2] == b"\xff\xf8"
        coded = chr(number).encode() if number < 0xD800 else b""
        assert data[at + 4 : at + 4 + len(coded)] == coded
        at += 4 + len(coded)
        if samples < BLOCK_SAMPLES:
            assert struct.unpack_from(">H", data, at)[0] == samples - 1
            at += 2
        assert data[at] == _crc(data[frame:at], 0x07, 8)
        at += 1
        block = []
        for _ in range(channels):
            assert data[at] == 2
            block.append(np.frombuffer(data[at + 1 : at + 1 + 2 * samples], ">i2"))
            at += 1 + 2 * samples
        assert struct.unpack_from(">H", data, at)[0] == _crc(data[frame:at], 0x8005, 16)
        at += 2
        blocks.append(np.stack(block))
        number, left = number + 1, left - samples
    assert at == len(data)
    decoded = np.concatenate(blocks, axis=1) if blocks else np.zeros((channels, 0), ">i2")
    assert info[18:] == hashlib.md5(decoded.T.astype("<i2").tobytes(), usedforsecurity=False).digest()
    return decoded, rate, texts


@pytest.mark.parametrize(
    ("channels", "samples"), [(1, 1), (2, 100), (2, BLOCK_SAMPLES), (3, BLOCK_SAMPLES + 7), (1, 0)]
)
def test_sound_comes_back_as_it_was(channels: int, samples: int) -> None:
    generator = torch.Generator().manual_seed(samples)
    waveform = torch.rand(channels, samples, generator=generator) * 2 - 1
    decoded, rate, texts = _decode(encode_flac(waveform, 44100, {"prompt": '{"ü": 1}', "workflow": "{}"}))
    assert (decoded == (waveform * 32767).round().numpy()).all()
    assert (rate, texts) == (44100, {"prompt": '{"ü": 1}', "workflow": "{}"})


def test_frame_numbers_take_as_many_bytes_as_they_need() -> None:
    waveform = torch.zeros(1, BLOCK_SAMPLES * 130)
    decoded, _, _ = _decode(encode_flac(waveform, 8000, {}))
    assert decoded.shape == (1, BLOCK_SAMPLES * 130)


def test_what_is_beyond_full_scale_is_cut_off() -> None:
    decoded, _, _ = _decode(encode_flac(torch.tensor([[2.0, -2.0, float("nan")]]), 8000, {}))
    assert decoded.tolist() == [[32767, -32767, 0]]


@pytest.mark.parametrize(("channels", "rate"), [(9, 44100), (0, 44100), (1, 0), (1, 1 << 20)])
def test_what_the_format_cannot_hold_is_refused(channels: int, rate: int) -> None:
    with pytest.raises(ValueError, match="FLAC holds no"):
        encode_flac(torch.zeros(channels, 4), rate, {})
