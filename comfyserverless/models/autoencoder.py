"""Load and run KL autoencoders on diffusers' AutoencoderKL: latents to pictures and back.

Samples are in the autoencoder's own units, which is what a graph's LATENT holds. Encoding takes the mean of
the posterior, so it is deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.models.modules import build_module, tensor_bytes
from comfyserverless.models.weights import Weights

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

MAX_BATCH_PX = 1 << 21
"""Pixels decoded or encoded at once; larger batches go in parts, as activations are large."""

_PREFIXES = ("first_stage_model.", "vae.", "")
_RENAMED = {
    "mid.block_1": "mid_block.resnets.0",
    "mid.block_2": "mid_block.resnets.1",
    "mid.attn_1": "mid_block.attentions.0",
    "norm_out": "conv_norm_out",
}
_ATTENTION = {"norm": "group_norm", "q": "to_q", "k": "to_k", "v": "to_v", "proj_out": "to_out.0"}


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
    """Load the autoencoder of a checkpoint or of a file of its own.

    Raises ModelFileError if the file holds none, or one of another kind.
    """
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    weights = _find(root)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    names = {old: new for old in weights if (new := _rename(weights, old)) is not None}
    tensors = {new: _load(weights, old, dtype).to(device) for old, new in names.items()}
    module = build_module(lambda: AutoencoderKL(**_config(weights)), tensors, root.path)
    return Autoencoder(module, downscale_px=2 ** _last_level(weights))


def _find(root: Weights) -> Weights:
    for prefix in _PREFIXES:
        part = root.below(prefix)
        if "decoder.conv_in.weight" in part and "encoder.conv_in.weight" in part:
            if "decoder.mid.block_1.conv1.weight" in part:
                return part
            raise ModelFileError(
                f"{root.path}: this autoencoder's layout is not supported (supported: KL, original naming)"
            )
    raise ModelFileError(
        f"{root.path}: holds no supported autoencoder (supported: KL autoencoders of SD1.5, SD2, SDXL)"
    )


def _load(weights: Weights, name: str, dtype: torch.dtype) -> Tensor:
    """Load a tensor; attention's 1x1 convolutions become the linear layers that they are."""
    tensor = weights.load(name, dtype)
    return tensor[:, :, 0, 0] if ".attn_1." in name and tensor.ndim == 4 else tensor


def _count(weights: Weights, pattern: str) -> int:
    count = 0
    while pattern.format(count) in weights:
        count += 1
    return count


def _config(weights: Weights) -> dict[str, Any]:
    levels = _count(weights, "encoder.down.{}.block.0.conv1.weight")
    channels = tuple(weights.shape(f"encoder.down.{level}.block.0.conv1.weight")[0] for level in range(levels))
    return {
        "block_out_channels": channels,
        "layers_per_block": _count(weights, "encoder.down.0.block.{}.conv1.weight"),
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "latent_channels": weights.shape("decoder.conv_in.weight")[1],
        "use_quant_conv": "quant_conv.weight" in weights,
        "use_post_quant_conv": "post_quant_conv.weight" in weights,
    }


def _rename(weights: Weights, name: str) -> str | None:
    """Map a tensor name of the original layout to diffusers'; None for tensors that are not used."""
    half, _, rest = name.partition(".")
    if half in ("quant_conv", "post_quant_conv"):
        return name
    if half not in ("encoder", "decoder"):
        return None
    for old, new in _RENAMED.items():
        if rest.startswith(old + "."):
            inner = rest.removeprefix(old + ".")
            renamed = _rename_inner(inner, is_attention="attn" in old) if "." in inner else inner
            return f"{half}.{new}.{renamed}"
    kind, level, part, *inner_parts = [*rest.split("."), "", "", ""]
    if kind not in ("down", "up"):
        return name
    inner = ".".join(word for word in inner_parts if word)
    at = int(level) if kind == "down" else _last_level(weights) - int(level)
    if part == "block":
        number, _, inner = inner.partition(".")
        return f"{half}.{kind}_blocks.{at}.resnets.{number}.{_rename_inner(inner, is_attention=False)}"
    return f"{half}.{kind}_blocks.{at}.{part}rs.0.{inner}"


def _rename_inner(inner: str, is_attention: bool) -> str:
    layer, _, leaf = inner.rpartition(".")
    if is_attention:
        return f"{_ATTENTION[layer]}.{leaf}"
    return inner.replace("nin_shortcut", "conv_shortcut")


def _last_level(weights: Weights) -> int:
    return _count(weights, "encoder.down.{}.block.0.conv1.weight") - 1
