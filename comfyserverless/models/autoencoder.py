"""Load and run KL autoencoders on diffusers' AutoencoderKL: latents to pictures and back.

Samples are in the autoencoder's own units, which is what a graph's LATENT holds. Encoding takes the mean of
the posterior, so it is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping
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

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

MAX_BATCH_PX = 1 << 21
"""Pixels decoded or encoded at once; larger batches go in parts, as activations are large."""


class Autoencoder:
    """A KL autoencoder on its device; its two halves are loaded apart, as most graphs use one."""

    def __init__(
        self, encoder: Runner[AutoencoderKL], decoder: Runner[AutoencoderKL], config: Mapping[str, Any]
    ) -> None:
        self.latent_channels: int = config["latent_channels"]
        self.downscale_px = 2 ** (len(config["block_out_channels"]) - 1)
        self.device = decoder.device
        self.residents = (encoder.base, decoder.base)
        self._dtype = _dtype(self.device)
        self._encoder = encoder
        self._decoder = decoder

    @torch.no_grad()
    def decode(self, samples: Tensor) -> Tensor:
        """Decode latents to pictures.

        samples: [B, C, h, w], the autoencoder's units. Returns [B, h * 8, w * 8, 3] float32 in 0..1 on the CPU.
        Raises PromptError for another number of channels.
        """
        if samples.ndim != 4 or samples.shape[1] != self.latent_channels:
            raise PromptError(
                f"this VAE decodes latents of {self.latent_channels} channels, got shape {list(samples.shape)}:"
                " the latent belongs to another model family"
            )
        cells = samples.shape[2] * samples.shape[3] * self.downscale_px**2
        parts = [self._decode(part) for part in torch.split(samples, max(1, MAX_BATCH_PX // cells))]
        return ((torch.cat(parts) + 1.0) / 2.0).clamp(0.0, 1.0).movedim(1, -1)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Encode pictures, cropped around the centre to whole latent cells, to [B, C, h, w] float32 on the CPU.

        pixels: [B, H, W, 3 or more] in 0..1; further channels are ignored. Raises PromptError for pictures
        smaller than one latent cell.
        """
        cropped = self._crop(pixels)[..., :3].movedim(-1, 1)
        count = max(1, MAX_BATCH_PX // (cropped.shape[2] * cropped.shape[3]))
        return torch.cat([self._encode(part) for part in torch.split(cropped, count)])

    def _decode(self, samples: Tensor) -> Tensor:
        with self._decoder.running() as module:
            decoded: Tensor = module.decode(samples.to(self.device, self._dtype), return_dict=False)[0]
            return decoded.float().cpu()

    def _encode(self, pixels: Tensor) -> Tensor:
        with self._encoder.running() as module:
            encoded = module.encode((pixels * 2.0 - 1.0).to(self.device, self._dtype))
            mode: Tensor = encoded.latent_dist.mode()
            return mode.float().cpu()

    def _crop(self, pixels: Tensor) -> Tensor:
        if pixels.ndim != 4 or pixels.shape[-1] < 3:
            raise PromptError(f"a VAE encodes pictures [B, H, W, 3], got shape {list(pixels.shape)}")
        cell = self.downscale_px
        for dim in (1, 2):
            length = pixels.shape[dim] // cell * cell
            if length == 0:
                raise PromptError(f"the picture is smaller than the {cell} pixels of one latent cell")
            pixels = pixels.narrow(dim, pixels.shape[dim] % cell // 2, length)
        return pixels


def load_autoencoder(root: Weights, residence: Residence) -> Autoencoder:
    """Make the autoencoder of a file ready to run, in the original or in diffusers' naming.

    Raises ModelFileError if the file holds none, or one of another kind.
    """
    weights = find_autoencoder(root)
    config = autoencoder_config(weights)
    skeleton = residence.skeletons.take("vae", config, lambda: _build(config))
    # Attention's 1x1 convolutions become the linear layers that they are: the same numbers in the same order.
    recipes = residence.recipes(skeleton, weights, {name: name for name in weights}, _dtype(residence.device))

    def half(kind: str, order: Order, *prefixes: str) -> Runner[AutoencoderKL]:
        part = {name: recipe for name, recipe in recipes.items() if name.startswith(prefixes)}
        return Runner(residence.keeper, skeleton, residence.register(kind, part, order), steps_of(order))

    encoder = half("vae encoder", vae_encoder_order(skeleton.module), "encoder.", "quant_conv.")
    decoder = half("vae decoder", vae_decoder_order(skeleton.module), "decoder.", "post_quant_conv.")
    return Autoencoder(encoder, decoder, config)


def _build(config: Mapping[str, Any]) -> AutoencoderKL:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    module: Any = AutoencoderKL(**config)
    module.set_attn_processor(ConvolutionalAttention())
    built: AutoencoderKL = module
    return built


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "cpu" else torch.bfloat16
