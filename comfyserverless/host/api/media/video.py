"""Let nodes read, hold and save films (`VIDEO`): from a file, or from pictures and sound. Needs PyAV."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch

from comfyserverless.host.api.media.codecs import require_av
from comfyserverless.host.api.media.components import VideoCodec, VideoComponents, VideoContainer
from comfyserverless.host.api.media.frames import DEFAULT_CRF, read_components, video_stream, write_components

Target = str | io.BytesIO


class VideoInput(ABC):
    """A film."""

    @abstractmethod
    def get_components(self) -> VideoComponents:
        """Return the film taken apart."""

    @abstractmethod
    def save_to(
        self,
        path: Target,
        format: VideoContainer = VideoContainer.AUTO,
        codec: VideoCodec = VideoCodec.AUTO,
        metadata: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Write the film; metadata: values that are kept as JSON texts.

        settings: `crf`, how much may be lost (0..51). Raises ValueError for other formats and settings.
        """

    def as_trimmed(
        self, start_time: float | None = None, duration: float | None = None, strict_duration: bool = False
    ) -> VideoInput | None:
        """Return a part of the film, both in seconds (no duration: to its end), None if it is too short."""
        parts = self.get_components()
        rate = float(parts.frame_rate)
        first = round((start_time or 0.0) * rate)
        wanted = round(duration * rate) if duration else max(len(parts.images) - first, 0)
        images = parts.images[first : first + wanted]
        if not len(images) or (strict_duration and len(images) < wanted):
            return None
        audio = _cut(parts.audio, first / rate, len(images) / rate)
        return VideoFromComponents(VideoComponents(images, parts.frame_rate, audio, parts.metadata))

    def get_stream_source(self) -> Target:
        """Return the film as a file: a path, or its content."""
        content = io.BytesIO()
        self.save_to(content)
        content.seek(0)
        return content

    def get_dimensions(self) -> tuple[int, int]:
        """Return width and height, px."""
        images = self.get_components().images
        return int(images.shape[2]), int(images.shape[1])

    def get_duration(self) -> float:
        """Return how long it is, s."""
        parts = self.get_components()
        return float(len(parts.images) / parts.frame_rate)

    def get_frame_count(self) -> int:
        """Return how many pictures it has."""
        return len(self.get_components().images)

    def get_frame_rate(self) -> Fraction:
        """Return pictures per second."""
        return self.get_components().frame_rate

    def get_container_format(self) -> str:
        """Return what kind of file it is."""
        return "mp4"


class VideoFromFile(VideoInput):
    """A film in a file (a path, or its content). start_time, duration: the part that counts, s."""

    def __init__(self, file: Target, *, start_time: float = 0, duration: float = 0) -> None:
        self._file = file
        self._start_s = float(start_time)
        self._duration_s = float(duration)

    def _open(self) -> Any:
        if isinstance(self._file, io.BytesIO):
            self._file.seek(0)
        return require_av("reading a film").open(self._file, mode="r")

    @property
    def _is_whole(self) -> bool:
        return self._start_s == 0 and self._duration_s == 0

    def get_stream_source(self) -> Target:
        """Return the path or the content; of a part, a new file with it."""
        if not self._is_whole:
            return super().get_stream_source()
        if isinstance(self._file, io.BytesIO):
            self._file.seek(0)
        return self._file

    def get_components(self) -> VideoComponents:
        """Return the pictures and the sound of the part that counts. Raises ValueError without pictures."""
        with self._open() as container:
            return read_components(container, self._start_s, self._duration_s)

    def as_trimmed(
        self, start_time: float | None = None, duration: float | None = None, strict_duration: bool = False
    ) -> VideoInput | None:
        """Return a part of the part that counts, without reading pictures; None if it is too short."""
        start = start_time or 0.0
        left = self.get_duration() - start
        wanted = duration or left
        if left <= 0 or (strict_duration and wanted > left + 1e-6):
            return None
        return VideoFromFile(self._file, start_time=self._start_s + start, duration=min(wanted, left))

    def get_dimensions(self) -> tuple[int, int]:
        """Return width and height, px. Raises ValueError without pictures."""
        with self._open() as container:
            stream = video_stream(container)
            return int(stream.width), int(stream.height)

    def get_duration(self) -> float:
        """Return how long the part that counts is, s. Raises ValueError without pictures."""
        with self._open() as container:
            stream = video_stream(container)
            if container.duration is not None:
                whole = float(container.duration) / 1e6
            elif stream.duration is not None:
                whole = float(stream.duration * stream.time_base)
            else:
                whole = float(sum(1 for _ in container.decode(video=0)) / stream.average_rate)
        left = max(whole - self._start_s, 0.0)
        return min(self._duration_s, left) if self._duration_s else left

    def get_frame_count(self) -> int:
        """Return how many pictures the part that counts has."""
        with self._open() as container:
            stream = video_stream(container)
            if self._is_whole and stream.frames:
                return int(stream.frames)
        return super().get_frame_count()

    def get_frame_rate(self) -> Fraction:
        """Return pictures per second."""
        with self._open() as container:
            return Fraction(video_stream(container).average_rate or 1)

    def get_container_format(self) -> str:
        """Return the names of the kind of file, with commas."""
        with self._open() as container:
            return str(container.format.name)

    def save_to(
        self,
        path: Target,
        format: VideoContainer = VideoContainer.AUTO,
        codec: VideoCodec = VideoCodec.AUTO,
        metadata: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Write the film: packet by packet if nothing but the metadata changes, else encoded again."""
        with self._open() as container:
            kinds = str(container.format.name).split(",")
            has_kind = (
                VideoContainer(format) is VideoContainer.AUTO or str(VideoContainer(format).value) in kinds
            )
            is_coded = (
                VideoCodec(codec) is VideoCodec.AUTO
                or str(video_stream(container).codec.name) == VideoCodec(codec).value
            )
            if self._is_whole and has_kind and is_coded and not known_settings(settings):
                _copy(container, path, kinds, json_texts(metadata))
                return
        VideoFromComponents(self.get_components()).save_to(path, format, codec, metadata, **settings)


class VideoFromComponents(VideoInput):
    """A film that is still pictures and sound."""

    def __init__(self, components: VideoComponents) -> None:
        self._components = components

    def get_components(self) -> VideoComponents:
        """Return the parts."""
        return self._components

    def save_to(
        self,
        path: Target,
        format: VideoContainer = VideoContainer.AUTO,
        codec: VideoCodec = VideoCodec.AUTO,
        metadata: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Write an MP4 file with H.264. Raises ValueError for other formats."""
        VideoContainer(format), VideoCodec(codec)
        crf = known_settings(settings).get("crf", DEFAULT_CRF)
        av = require_av("saving a film")
        texts = json_texts({**(self._components.metadata or {}), **(metadata or {})})
        with av.open(path, mode="w", format="mp4", options={"movflags": "use_metadata_tags"}) as container:
            container.metadata.update(texts)
            write_components(container, self._components, crf)


def known_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a save that were given. Raises ValueError for those that are not known here."""
    given = {name: value for name, value in settings.items() if value is not None}
    unknown = sorted(set(given) - {"crf"})
    if unknown:
        raise ValueError(f"films are saved with crf only, not with {', '.join(unknown)}")
    return given


def json_texts(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return metadata as a file keeps it: texts as they are, the rest as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in (metadata or {}).items()
    }


def _copy(source: Any, path: Target, kinds: list[str], texts: Mapping[str, str]) -> None:
    """Copy a file packet by packet, with more metadata."""
    av = require_av("saving a film")
    options = {"movflags": "use_metadata_tags"} if "mp4" in kinds else {}
    kind = "mp4" if "mp4" in kinds else kinds[0]
    with av.open(path, mode="w", format=kind, options=options) as target:
        target.metadata.update({**source.metadata, **texts})
        streams = {
            stream.index: target.add_stream_from_template(stream)
            for stream in source.streams
            if stream.type in ("video", "audio", "subtitle")
        }
        for packet in source.demux():
            if packet.dts is not None and packet.stream.index in streams:
                packet.stream = streams[packet.stream.index]
                target.mux(packet)


def _cut(audio: Any, start_s: float, duration_s: float) -> Any:
    if audio is None:
        return None
    rate = int(audio["sample_rate"])
    first = round(start_s * rate)
    waveform: torch.Tensor = audio["waveform"][..., first : first + round(duration_s * rate)]
    return {"waveform": waveform, "sample_rate": rate}
