"""Read pictures and sound from an open container of PyAV, and write them to one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch

from comfyserverless.functions.resampling import to_8bit
from comfyserverless.host.api.media.codecs import require_av
from comfyserverless.host.api.media.components import VideoComponents

DEFAULT_CRF = 23
"""How much H.264 may lose: 0 nothing, 51 the most."""


def video_stream(container: Any) -> Any:
    """Return the first stream of pictures. Raises ValueError if there is none."""
    streams = container.streams.video
    if not streams:
        raise ValueError("the file has no pictures: it is no film")
    return streams[0]


def read_components(container: Any, start_s: float, duration_s: float) -> VideoComponents:
    """Read a part of a film: from start_s, for duration_s (0: to its end).

    Raises ValueError without pictures.
    """
    stream = video_stream(container)
    rate = Fraction(stream.average_rate or 1)
    end_s = start_s + duration_s if duration_s else float("inf")
    half_s = 0.5 / float(rate)
    pictures: list[torch.Tensor] = []
    sounds: list[np.ndarray[Any, Any]] = []
    sound = next(iter(container.streams.audio), None)
    for frame in container.decode(*(each for each in (stream, sound) if each is not None)):
        time_s = frame.time or 0.0
        if not hasattr(frame, "to_image"):
            sounds.append(_samples(frame, sound))
        elif start_s - half_s <= time_s < end_s - half_s:
            pictures.append(torch.from_numpy(frame.to_ndarray(format="rgb24").copy()).float() / 255.0)
    images = torch.stack(pictures) if pictures else torch.zeros(0, stream.height, stream.width, 3)
    audio = _audio(sounds, sound, start_s, end_s) if sounds else None
    return VideoComponents(images, rate, audio, dict(container.metadata))


def write_components(container: Any, parts: VideoComponents, crf: float = DEFAULT_CRF) -> None:
    """Write pictures as H.264 and sound as AAC. Sides are cut to even numbers, as H.264 needs them."""
    av = require_av("saving a film")
    rate = Fraction(parts.frame_rate).limit_denominator(1 << 16)
    height, width = (int(side) // 2 * 2 for side in parts.images.shape[1:3])
    stream = container.add_stream("libx264", rate=rate, options={"crf": str(crf)})
    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
    sound = None if parts.audio is None else _add_sound(container, parts)
    for picture in parts.images:
        pixels = np.ascontiguousarray(to_8bit(picture[None, :height, :width, :3])[0])
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
    container.mux(stream.encode(None))
    if sound is not None:
        _write_sound(container, sound, parts, float(len(parts.images) / rate))


def _layout(parts: VideoComponents) -> str:
    return "mono" if parts.audio["waveform"].shape[1] == 1 else "stereo"


def _add_sound(container: Any, parts: VideoComponents) -> Any:
    return container.add_stream("aac", rate=int(parts.audio["sample_rate"]), layout=_layout(parts))


def _write_sound(container: Any, stream: Any, parts: VideoComponents, duration_s: float) -> None:
    """Write the sound of the first item of the batch, no longer than the pictures."""
    av = require_av("saving a film")
    rate = int(parts.audio["sample_rate"])
    waveform = parts.audio["waveform"][0, :2, : round(duration_s * rate)].float().cpu().contiguous()
    layout = _layout(parts)
    frame = av.AudioFrame.from_ndarray(waveform.numpy(), format="fltp", layout=layout)
    frame.sample_rate, frame.pts = rate, 0
    container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def _samples(frame: Any, stream: Any) -> np.ndarray[Any, Any]:
    """Return the sound of a frame, [C, T] float -1..1."""
    channels = int(stream.channels)
    data: np.ndarray[Any, Any] = frame.to_ndarray()
    if not frame.format.is_planar:
        data = data.reshape(-1, channels).T
    if data.dtype.kind == "f":
        return data.astype(np.float32)
    middle = 128 if data.dtype == np.uint8 else 0
    return (data.astype(np.float32) - middle) / float(1 << (8 * data.dtype.itemsize - 1))


def _audio(sounds: list[np.ndarray[Any, Any]], stream: Any, start_s: float, end_s: float) -> dict[str, Any]:
    rate = int(stream.rate)
    joined = torch.from_numpy(np.concatenate(sounds, axis=1))
    last = joined.shape[1] if end_s == float("inf") else round(end_s * rate)
    return {"waveform": joined[:, round(start_s * rate) : last][None], "sample_rate": rate}
