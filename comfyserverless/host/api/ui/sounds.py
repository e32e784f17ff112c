"""Save sounds as FLAC, MP3 or Opus, with what lets the page open the graph again."""

from __future__ import annotations

from typing import Any

from comfyserverless.host.api.media.sound import encode_sound
from comfyserverless.host.api.ui.files import SavePlace, embedded_texts
from comfyserverless.host.api.ui.results import SavedAudios, SavedResult


class AudioSaveHelper:
    """Save sounds. audio: a dict of waveform [B, C, T] and sample_rate; cls: the running node class."""

    @staticmethod
    def save_audio(
        audio: Any,
        filename_prefix: str,
        folder_type: Any,
        cls: Any,
        format: str = "flac",
        quality: str = "128k",
    ) -> list[SavedResult]:
        """Save each sound of the batch and return the files in order; see `media.sound.encode_sound`."""
        texts = embedded_texts(cls)
        place = SavePlace.of(filename_prefix, folder_type)
        saved = []
        for index, waveform in enumerate(audio["waveform"]):
            content = encode_sound(waveform, int(audio["sample_rate"]), format, quality, texts)
            saved.append(place.write(content, format, index))
        return saved

    @staticmethod
    def get_save_audio_ui(
        audio: Any, filename_prefix: str, cls: Any, format: str = "flac", quality: str = "128k"
    ) -> SavedAudios:
        """Save each sound of the batch to the output folder and return what plays them."""
        return SavedAudios(AudioSaveHelper.save_audio(audio, filename_prefix, "output", cls, format, quality))
