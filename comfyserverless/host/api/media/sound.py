"""Encode sounds."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.host.api.media.codecs import find_av, require_av
from comfyserverless.host.api.media.flac import encode_flac

_CODECS = {"flac": "flac", "mp3": "libmp3lame", "opus": "libopus"}
_OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
_BIT_RATES = {"64k": 64000, "96k": 96000, "128k": 128000, "192k": 192000, "320k": 320000}


def encode_sound(
    waveform: torch.Tensor, sample_rate: int, format: str, quality: str, texts: Mapping[str, str]
) -> bytes:
    """Return a sound file. waveform: [C, T] float -1..1; format: flac, mp3 or opus; texts: tags by name.

    quality: of mp3 and opus, `V0` or a bit rate like `128k`. FLAC needs no codec library (without one it is not
    made smaller). Raises ValueError for other formats, RuntimeError where PyAV is needed and not installed.
    """
    if format not in _CODECS:
        raise ValueError(f"sounds are saved as {', '.join(_CODECS)}, not as {format}")
    if format == "flac" and find_av() is None:
        return encode_flac(waveform, sample_rate, texts)
    return _encode_with_av(waveform, sample_rate, (format, quality), texts)


def _encode_with_av(
    waveform: torch.Tensor, sample_rate: int, kind: tuple[str, str], texts: Mapping[str, str]
) -> bytes:
    av = require_av(f"saving sound as {kind[0]}")
    target = io.BytesIO()
    layout = "mono" if waveform.shape[0] == 1 else "stereo"
    samples = waveform[:2].detach().float().cpu().contiguous()
    frame = av.AudioFrame.from_ndarray(samples.numpy(), format="fltp", layout=layout)
    frame.sample_rate = sample_rate
    frame.pts = 0
    with av.open(target, mode="w", format=kind[0]) as container:
        container.metadata.update(texts)
        stream = container.add_stream(_CODECS[kind[0]], rate=_rate_for(kind[0], sample_rate), layout=layout)
        _set_quality(stream, *kind)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


def _rate_for(format: str, sample_rate: int) -> int:
    """Return the rate to save at: Opus knows five."""
    if format != "opus":
        return sample_rate
    return next((rate for rate in _OPUS_RATES if rate >= sample_rate), _OPUS_RATES[-1])


def _set_quality(stream: Any, format: str, quality: str) -> None:
    if format == "flac":
        return
    if quality == "V0" and format == "mp3":
        stream.codec_context.qscale = 1
    else:
        stream.bit_rate = _BIT_RATES.get(quality, _BIT_RATES["128k"])
