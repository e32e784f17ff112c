"""Load and run KL autoencoders on diffusers' AutoencoderKL: latents to pictures and back.

Samples are in the autoencoder's own units, which is what a graph's LATENT holds. Encoding takes the mean of
the posterior, so it is deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.autoencoder_attention import ConvolutionalAttention
from comfyserverless.models.autoencoder_layout import autoencoder_config, find_autoencoder
from comfyserverless.models.modules import build_module, tensor_bytes
from comfyserverless.models.reading.weights import Weights

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

MAX_BATCH_PX = 1 << 21
"""Pixels decoded or encoded at once; larger batches go in parts, as activations are large."""


class Autoencoder:
    """A KL autoencoder on its device."""

    def __init__(self, module: AutoencoderKL, downscale_px: int) -> None:
        parameter = module.decoder.conv_in.weight
        self.latent_channels: int = parameter.shape[1]
        self.downscale_px = downscale_px
        self.device = parameter.device
        self._dtype = parameter.dtype
        self._module = module

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
        parts = [
            self._module.decode(part.to(self.device, self._dtype), return_dict=False)[0].float().cpu()
            for part in torch.split(samples, max(1, MAX_BATCH_PX // cells))
        ]
        return ((torch.cat(parts) + 1.0) / 2.0).clamp(0.0, 1.0).movedim(1, -1)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Encode pictures, cropped around the centre to whole latent cells, to [B, C, h, w] float32 on the CPU.

        pixels: [B, H, W, 3 or more] in 0..1; further channels are ignored. Raises PromptError for pictures
        smaller than one latent cell.
        """
        cropped = self._crop(pixels)[..., :3].movedim(-1, 1)
        count = max(1, MAX_BATCH_PX // (cropped.shape[2] * cropped.shape[3]))
        parts = [
            self._module.encode((part * 2.0 - 1.0).to(self.device, self._dtype))
            .latent_dist.mode()
            .float()
            .cpu()
            for part in torch.split(cropped, count)
        ]
        return torch.cat(parts)

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""
        return tensor_bytes(dict(self._module.named_parameters()))

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


def load_autoencoder(root: Weights, device: torch.device) -> Autoencoder:
    """Load the autoencoder of a checkpoint or of a file of its own, in the original or in diffusers' naming.

    Raises ModelFileError if the file holds none, or one of another kind.
    """
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    weights = find_autoencoder(root)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    tensors = {name: _load(weights, name, dtype).to(device) for name in weights}
    config = autoencoder_config(weights)
    module = build_module(lambda: AutoencoderKL(**config), tensors, root.path)
    module.set_attn_processor(ConvolutionalAttention())
    return Autoencoder(module, downscale_px=2 ** (len(config["block_out_channels"]) - 1))


def _load(weights: Weights, name: str, dtype: torch.dtype) -> Tensor:
    """Load a tensor; attention's 1x1 convolutions become the linear layers that they are."""
    tensor = weights.load_real(name, dtype)
    return tensor[:, :, 0, 0] if ".attentions." in name and tensor.ndim == 4 else tensor
