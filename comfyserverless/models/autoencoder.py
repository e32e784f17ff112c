"""Load and run KL autoencoders on diffusers' AutoencoderKL: latents to pictures and back.

Samples are in the autoencoder's own units, which is what a graph's LATENT holds. Encoding takes the mean of
the posterior, so it is deterministic.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.autoencoder_attention import ConvolutionalAttention
from comfyserverless.models.autoencoder_layout import autoencoder_config, find_autoencoder
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.order import Order, vae_decoder_order, vae_encoder_order
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner, steps_of
from comfyserverless.models.tiles.blending import run_in_tiles, three_tilings

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

_logger = logging.getLogger(__name__)

MAX_BATCH_PX = 1 << 21
"""Pixels decoded or encoded at once; larger batches go in parts, as activations are large."""


DECODED_TILE_CELLS, DECODED_OVERLAP_CELLS = 64, 16
ENCODED_TILE_PX, ENCODED_OVERLAP_PX = 512, 64


class Autoencoder(ABC):
    """An autoencoder on its device.

    residents: its two halves, which are loaded apart, as most graphs use one.
    """

    def __init__(self, latent_channels: int, downscale_px: int, halves: Sequence[Runner[Any]]) -> None:
        self.latent_channels = latent_channels
        self.downscale_px = downscale_px
        self.device = halves[0].device
        self.residents = tuple(half.base for half in halves)
        self.dtype = autoencoder_dtype(self.device)

    @abstractmethod
    def decode_part(self, samples: Tensor) -> Tensor:
        """Decode [B, C, h, w] at once to [B, 3, h * 8, w * 8] in -1..1 or beyond, float32 on the CPU."""

    @abstractmethod
    def encode_part(self, pixels: Tensor) -> Tensor:
        """Encode [B, 3, h * 8, w * 8] in 0..1 at once to [B, C, h, w] float32 on the CPU."""

    @torch.no_grad()
    def decode(self, samples: Tensor) -> Tensor:
        """Decode latents to pictures.

        samples: [B, C, h, w], the autoencoder's units. Returns [B, h * 8, w * 8, 3] float32 in 0..1 on the CPU.
        Raises PromptError for another number of channels.
        """
        self.check_samples(samples)
        cells = samples.shape[2] * samples.shape[3] * self.downscale_px**2
        parts = [self._decode_whole(part) for part in torch.split(samples, max(1, MAX_BATCH_PX // cells))]
        return to_pictures(torch.cat(parts))

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Encode pictures, cropped around the centre to whole latent cells, to [B, C, h, w] float32 on the CPU.

        pixels: [B, H, W, 3 or more] in 0..1; further channels are ignored. Raises PromptError for pictures
        smaller than one latent cell.
        """
        cropped = self.crop(pixels)[..., :3].movedim(-1, 1)
        count = max(1, MAX_BATCH_PX // (cropped.shape[2] * cropped.shape[3]))
        return torch.cat([self._encode_whole(part) for part in torch.split(cropped, count)])

    def _decode_whole(self, samples: Tensor) -> Tensor:
        """Decode at once or, if that takes more memory than there is, in tiles."""
        made = _unless_out_of_memory(self.decode_part, samples)
        if made is not None:
            return made
        tilings = three_tilings(DECODED_TILE_CELLS, DECODED_OVERLAP_CELLS, is_square_first=False)
        return run_in_tiles(samples, self.decode_part, tilings, Fraction(self.downscale_px))

    def _encode_whole(self, pixels: Tensor) -> Tensor:
        """Encode at once or, if that takes more memory than there is, in tiles."""
        made = _unless_out_of_memory(self.encode_part, pixels)
        if made is not None:
            return made
        tilings = three_tilings(ENCODED_TILE_PX, ENCODED_OVERLAP_PX, is_square_first=True)
        return run_in_tiles(pixels, self.encode_part, tilings, Fraction(1, self.downscale_px))

    def check_samples(self, samples: Tensor) -> None:
        """Raise PromptError if this is no batch of latents [B, C, h, w] of this autoencoder."""
        if samples.ndim != 4 or samples.shape[1] != self.latent_channels:
            raise PromptError(
                f"this VAE decodes latents of {self.latent_channels} channels, got shape {list(samples.shape)}:"
                " the latent belongs to another model family"
            )

    def crop(self, pixels: Tensor) -> Tensor:
        """Cut [B, H, W, C] around its centre to whole cells. Raises PromptError if that leaves nothing."""
        if pixels.ndim != 4 or pixels.shape[-1] < 3:
            raise PromptError(f"a VAE encodes pictures [B, H, W, 3], got shape {list(pixels.shape)}")
        cell = self.downscale_px
        for dim in (1, 2):
            length = pixels.shape[dim] // cell * cell
            if length == 0:
                raise PromptError(f"the picture is smaller than the {cell} pixels of one latent cell")
            pixels = pixels.narrow(dim, pixels.shape[dim] % cell // 2, length)
        return pixels


def autoencoder_dtype(device: torch.device) -> torch.dtype:
    """Return the type that autoencoders run in: float32 on CPUs, bfloat16 on accelerators."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def to_pictures(decoded: Tensor) -> Tensor:
    """Return pictures [B, H, W, 3] in 0..1 of what a decoder gives, [B, 3, H, W] in -1..1 or beyond."""
    return ((decoded + 1.0) / 2.0).clamp(0.0, 1.0).movedim(1, -1)


def _unless_out_of_memory(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor | None:
    """Return what a network makes of x, None if the device has too little memory for it."""
    try:
        return network(x)
    except torch.OutOfMemoryError:
        _logger.warning("%s is too large for the memory of the device at once; tiles follow", list(x.shape))
    torch.cuda.empty_cache()
    return None


class KlAutoencoder(Autoencoder):
    """An autoencoder in the module of diffusers."""

    def __init__(
        self, encoder: Runner[AutoencoderKL], decoder: Runner[AutoencoderKL], config: Mapping[str, Any]
    ) -> None:
        downscale_px = 2 ** (len(config["block_out_channels"]) - 1)
        super().__init__(config["latent_channels"], downscale_px, (encoder, decoder))
        self._encoder = encoder
        self._decoder = decoder

    @torch.no_grad()
    def decode_part(self, samples: Tensor) -> Tensor:
        """Decode at once."""
        with self._decoder.running() as module:
            decoded: Tensor = module.decode(samples.to(self.device, self.dtype), return_dict=False)[0]
            return decoded.float().cpu()

    @torch.no_grad()
    def encode_part(self, pixels: Tensor) -> Tensor:
        """Encode at once."""
        with self._encoder.running() as module:
            encoded = module.encode((pixels * 2.0 - 1.0).to(self.device, self.dtype))
            mode: Tensor = encoded.latent_dist.mode()
            return mode.float().cpu()


def load_autoencoder(root: Weights, residence: Residence) -> Autoencoder:
    """Make the autoencoder of a file ready to run, in the original or in diffusers' naming.

    Raises ModelFileError if the file holds none, or one of another kind.
    """
    weights = find_autoencoder(root)
    config = autoencoder_config(weights)
    skeleton = residence.skeletons.take("vae", config, lambda: _build(config))
    # Attention's 1x1 convolutions become the linear layers that they are: the same numbers in the same order.
    recipes = residence.recipes(
        skeleton, weights, {name: name for name in weights}, autoencoder_dtype(residence.device)
    )

    def half(kind: str, order: Order, *prefixes: str) -> Runner[AutoencoderKL]:
        part = {name: recipe for name, recipe in recipes.items() if name.startswith(prefixes)}
        return Runner(residence.keeper, skeleton, residence.register(kind, part, order), steps_of(order))

    encoder = half("vae encoder", vae_encoder_order(skeleton.module), "encoder.", "quant_conv.")
    decoder = half("vae decoder", vae_decoder_order(skeleton.module), "decoder.", "post_quant_conv.")
    return KlAutoencoder(encoder, decoder, config)


def _build(config: Mapping[str, Any]) -> AutoencoderKL:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    module: Any = AutoencoderKL(**config)
    module.set_attn_processor(ConvolutionalAttention())
    built: AutoencoderKL = module
    return built
