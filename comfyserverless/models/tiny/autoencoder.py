"""Use a tiny autoencoder where an autoencoder is wanted: latents of a graph to pictures and back.

The networks work in the units of diffusion models, a graph's LATENT is in those of the family's autoencoder; in
between lie the family's scale and shift.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import VaeRef
from comfyserverless.models.autoencoder import Autoencoder
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.tiny.halves import DOWNSCALE_PX, load_half

_PREFIXES = ("taesd_encoder.", "taesd_decoder.")
_IN_CHECKPOINT = "first_stage_model."
_SCALE, _SHIFT = "vae_scale", "vae_shift"

#: Name -> (scale, shift) of the family: network units = (graph units - shift) * scale.
UNITS = {
    "taesd": (0.18215, 0.0),
    "taesdxl": (0.13025, 0.0),
    "taesd3": (1.5305, 0.0609),
    "taef1": (0.3611, 0.1159),
}


@dataclass(frozen=True, slots=True)
class TinyParts:
    """The tensors of both networks, and the units of the latents."""

    encoder: Weights
    decoder: Weights
    scale: float
    shift: float

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it under the names that one file for both networks has."""
        halves = zip(_PREFIXES, (self.encoder, self.decoder), strict=True)
        found = {f"{prefix}{name}": part.load(name) for prefix, part in halves for name in part}
        return {**found, _SCALE: torch.tensor(self.scale), _SHIFT: torch.tensor(self.shift)}


class TinyAutoencoder(Autoencoder):
    """A tiny autoencoder on its device."""

    def __init__(self, parts: TinyParts, residence: Residence) -> None:
        self._encoder, channels = load_half("encoder", parts.encoder, residence)
        self._decoder, decoded_channels = load_half("decoder", parts.decoder, residence)
        if channels != decoded_channels:
            raise ModelFileError(
                f"{parts.decoder.path}: decodes latents of {decoded_channels} channels, but the encoder"
                f" {parts.encoder.path} makes them of {channels}"
            )
        super().__init__(channels, DOWNSCALE_PX, (self._encoder, self._decoder))
        self._scale, self._shift = parts.scale, parts.shift

    @torch.no_grad()
    def decode_part(self, samples: Tensor) -> Tensor:
        """Decode at once."""
        latents = (samples - self._shift) * self._scale
        with self._decoder.running() as network:
            decoded: Tensor = network(latents.to(self.device, self.dtype))
            return decoded.float().cpu() * 2.0 - 1.0

    @torch.no_grad()
    def encode_part(self, pixels: Tensor) -> Tensor:
        """Encode at once."""
        with self._encoder.running() as network:
            encoded: Tensor = network(pixels.to(self.device, self.dtype))
            return encoded.float().cpu() / self._scale + self._shift


def is_tiny(root: Weights) -> bool:
    """Tell whether a file holds both networks of a tiny autoencoder, as VAESave writes them."""
    return all(any(name.startswith(prefix) for name in root) for prefix in _PREFIXES)


def find_parts(ref: VaeRef, root: Weights, stack: ExitStack) -> TinyParts | None:
    """Return the parts of a tiny autoencoder, None if `root`, the file of `ref`, is of another kind.

    A second file stays open as long as `stack`. Raises ModelFileError if it cannot be read.
    """
    if ref.encoder is not None:
        return TinyParts(stack.enter_context(opened(ref.encoder)), root, *UNITS[ref.tiny])
    root = next((part for part in (root, root.below(_IN_CHECKPOINT)) if is_tiny(part)), root)
    if not is_tiny(root):
        return None
    scale, shift = (_number(root, name, default) for name, default in ((_SCALE, 1.0), (_SHIFT, 0.0)))
    encoder, decoder = (root.below(prefix) for prefix in _PREFIXES)
    return TinyParts(encoder, decoder, scale, shift)


def _number(root: Weights, name: str, default: float) -> float:
    return float(root.load(name).reshape(-1)[0]) if name in root else default
