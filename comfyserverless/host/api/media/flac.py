"""Write FLAC files (RFC 9639) without a codec library: every block verbatim, 16 bit sound is kept exactly."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

import numpy as np
import torch

BLOCK_SAMPLES = 4096
_BLOCK_CODE, _LAST_BLOCK_CODE = 0b1100, 0b0111
_BITS = 16
_BITS_CODE = 0b100
_VERBATIM = 0b00000010
_MAX_CHANNELS = 8
_MAX_RATE = (1 << 20) - 1
_VENDOR = b"comfyserverless"


def encode_flac(waveform: torch.Tensor, sample_rate: int, texts: Mapping[str, str]) -> bytes:
    """Return a FLAC file. waveform: [C, T] float -1..1, cut off beyond; texts: comments by name.

    Raises ValueError for more than 8 channels or a rate that the format has no room for.
    """
    channels = int(waveform.shape[0])
    if not 1 <= channels <= _MAX_CHANNELS or not 0 < sample_rate <= _MAX_RATE:
        raise ValueError(f"FLAC holds no {channels} channels at {sample_rate} samples per second")
    scaled = (waveform.detach().float().cpu().clamp(-1, 1).nan_to_num() * 32767).round()
    samples = scaled.to(torch.int16).numpy()
    head = b"".join((b"fLaC", _stream_info(samples, sample_rate), _comments(texts)))
    return head + b"".join(_frames(samples))


def _stream_info(samples: np.ndarray[tuple[int, ...], np.dtype[np.int16]], sample_rate: int) -> bytes:
    channels, count = samples.shape
    digest = hashlib.md5(samples.T.astype("<i2").tobytes(), usedforsecurity=False).digest()
    packed = sample_rate << 44 | (channels - 1) << 41 | (_BITS - 1) << 36 | count
    body = struct.pack(">HH", BLOCK_SAMPLES, BLOCK_SAMPLES) + bytes(6) + struct.pack(">Q", packed) + digest
    return struct.pack(">I", len(body)) + body  # type 0


def _comments(texts: Mapping[str, str]) -> bytes:
    entries = [f"{key}={text}".encode() for key, text in texts.items()]
    parts = [struct.pack("<I", len(_VENDOR)), _VENDOR, struct.pack("<I", len(entries))]
    for entry in entries:
        parts += [struct.pack("<I", len(entry)), entry]
    body = b"".join(parts)
    return struct.pack(">I", (0x80 | 4) << 24 | len(body)) + body  # the last block, type 4


def _frames(samples: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> list[bytes]:
    channels, count = samples.shape
    frames = []
    for number, start in enumerate(range(0, count, BLOCK_SAMPLES)):
        block = samples[:, start : start + BLOCK_SAMPLES]
        subframes = b"".join(bytes([_VERBATIM]) + channel.astype(">i2").tobytes() for channel in block)
        frames.append(_frame_header(number, channels, block.shape[1]) + subframes)
    return [frame + struct.pack(">H", crc) for frame, crc in zip(frames, _crc16_of(frames), strict=True)]


def _frame_header(number: int, channels: int, samples: int) -> bytes:
    is_full = samples == BLOCK_SAMPLES
    code = _BLOCK_CODE if is_full else _LAST_BLOCK_CODE
    head = bytes([0xFF, 0xF8, code << 4, (channels - 1) << 4 | _BITS_CODE << 1]) + _utf8_number(number)
    if not is_full:
        head += struct.pack(">H", samples - 1)
    crc = 0
    for byte in head:
        crc = _CRC8[crc ^ byte]
    return head + bytes([crc])


def _utf8_number(number: int) -> bytes:
    """Code a number as UTF-8 codes characters, with up to 31 bits."""
    if number < 0x80:
        return bytes([number])
    tail: list[int] = []
    while number >= 1 << (6 - len(tail)):
        tail.append(0x80 | number & 0x3F)
        number >>= 6
    lead = (0xFF << (7 - len(tail))) & 0xFF
    return bytes([lead | number, *reversed(tail)])


def _table(polynomial: int, bits: int) -> list[int]:
    top, mask = 1 << (bits - 1), (1 << bits) - 1
    table = []
    for byte in range(256):
        crc = byte << (bits - 8)
        for _ in range(8):
            crc = (crc << 1 ^ polynomial if crc & top else crc << 1) & mask
        table.append(crc)
    return table


_CRC8 = _table(0x07, 8)
_CRC16 = np.array(_table(0x8005, 16), dtype=np.uint16)


def _crc16_of(frames: list[bytes]) -> list[int]:
    """Return the checksum of each frame; frames of one length are done at once, byte by byte."""
    sums = [0] * len(frames)
    lengths: dict[int, list[int]] = {}
    for index, frame in enumerate(frames):
        lengths.setdefault(len(frame), []).append(index)
    for length, indices in lengths.items():
        joined = np.frombuffer(b"".join(frames[index] for index in indices), np.uint8)
        columns = np.ascontiguousarray(joined.reshape(len(indices), length).T)
        crc = np.zeros(len(indices), np.uint16)
        for column in columns:
            crc = (crc << np.uint16(8)) ^ _CRC16[(crc >> np.uint16(8)) ^ column]
        for index, value in zip(indices, crc.tolist(), strict=True):
            sums[index] = value
    return sums
