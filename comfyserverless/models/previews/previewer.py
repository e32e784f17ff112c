"""Choose how latents of a model are shown: by its tiny autoencoder (TAESD), else by colours.

Everything is found when the first preview is made, on the thread that makes previews: sampling waits for none
of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from comfyserverless.core.errors import ComfyServerlessError, ModelFileError
from comfyserverless.core.values import FileRef, ModelRef, VaeRef
from comfyserverless.models.autoencoder import Autoencoder
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.families.units import to_output_units
from comfyserverless.models.previews.colours import LatentColours, fit_colours, guess_colours, to_levels
from comfyserverless.models.tiny.decoder import TinyDecoder

_logger = logging.getLogger(__name__)

#: Family -> the name of its tiny autoencoder.
_TINY = {"sd15": "taesd", "sd2": "taesd", "sdxl": "taesdxl", "sd3": "taesd3", "flux": "taef1"}


class Models(Protocol):
    """Where models come from: the pool."""

    def facts(self, ref: ModelRef) -> ModelFacts:
        """Return what the header of a diffusion model says. Raises ModelFileError."""

    def vae(self, ref: VaeRef) -> Autoencoder:
        """Return an autoencoder. Raises ModelFileError."""

    def tiny_decoder(self, file: FileRef) -> TinyDecoder:
        """Return the decoder of a tiny autoencoder. Raises ModelFileError."""


class Previewer:
    """Show the latents of the models of one pool; for one thread."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._colours: dict[FileRef, LatentColours] = {}
        #: what was warned of, and decoders that are not tried again
        self._warned: set[str] = set()
        self._refused: set[FileRef] = set()

    def picture(self, model: ModelRef, denoised: Tensor, decoders: Mapping[str, FileRef] | None) -> Tensor:
        """Return the first item of a batch as uint8 [h, w, 3] on the CPU.

        denoised: [B, C, h, w] in the units of the model. decoders: of tiny autoencoders, by name; None shows
        colours, as does whatever is wrong with the decoder, which is warned of once.
        """
        facts = self._models.facts(model)
        if decoders is not None:
            shown = self._decoded(facts.family, denoised[:1], decoders)
            if shown is not None:
                return shown
        return self.colours(model).latent_to_rgb(to_output_units(denoised[:1], facts))

    def colours(self, model: ModelRef) -> LatentColours:
        """Return the map from a model's latents to colours, fitted once to the file's autoencoder."""
        if model.file not in self._colours:
            self._colours[model.file] = self._find_colours(model)
        return self._colours[model.file]

    def _decoded(self, family: str, denoised: Tensor, decoders: Mapping[str, FileRef]) -> Tensor | None:
        name = _TINY.get(family)
        file = None if name is None else decoders.get(name)
        if file is None:
            wanted = (
                f"no decoder for {family}" if name is None else f"no file {name}_decoder in models/vae_approx"
            )
            self._warn(wanted)
            return None
        if file in self._refused:
            return None
        try:
            picture = self._models.tiny_decoder(file).decode(denoised)[0]
        except (ComfyServerlessError, RuntimeError) as exc:  # RuntimeError: torch, for want of memory
            if isinstance(exc, ModelFileError):
                self._refused.add(file)
            self._warn(str(exc) or type(exc).__name__)
            return None
        return to_levels(picture.movedim(0, -1))

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            _logger.warning("TAESD previews are not possible, latent2rgb is shown: %s", reason)

    def _find_colours(self, model: ModelRef) -> LatentColours:
        channels = self._models.facts(model).latent_channels
        try:
            vae = self._models.vae(VaeRef(model.file))
            if vae.latent_channels == channels:
                return fit_colours(vae)
        except (ComfyServerlessError, ArithmeticError, RuntimeError) as exc:
            _logger.warning("%s: previews have plain colours: %s", model.file.path, exc)
        return guess_colours(channels)
