"""The denoiser and the text encoder of the demo model, in the sizes that fit a small file."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from comfyserverless.models.text.clip import ClipConfig, embed_tokens, run_clip
from comfyserverless.training.scenery.vocabulary import TOKENS, row_count

TRAIN_STEPS = 1000
_BETA_FIRST, _BETA_LAST = 0.00085, 0.012
_UNET_CHANNELS = (64, 64, 64)
_UNET_HEADS = 8
TEXT = ClipConfig(width=64, layers=2, is_quick_gelu=True)
TOKEN_TABLE = "embeddings.token_embedding.weight"


def alphas_cumprod() -> Tensor:
    """Return the products of (1 - beta) [1000] of the scaled-linear schedule of Stable Diffusion 1.x."""
    betas = torch.linspace(_BETA_FIRST**0.5, _BETA_LAST**0.5, TRAIN_STEPS) ** 2
    return torch.cumprod(1 - betas, 0)


def make_unet() -> nn.Module:
    """Build the denoiser: three levels of 64 channels, cross attention on the two coarse ones."""
    unet: Any = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=_UNET_CHANNELS,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=TEXT.width,
        attention_head_dim=_UNET_HEADS,
        norm_num_groups=32,
    )
    module: nn.Module = unet
    return module


class _RoundToEighth(torch.autograd.Function):
    """Round to what eight bits can hold (float8 e4m3); gradients pass as if nothing had been rounded."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x.to(torch.float8_e4m3fn).float()

    @staticmethod
    def backward(_: object, grad: Tensor) -> Tensor:
        return grad


class TextEncoder(nn.Module):
    """A CLIP text transformer over the small embedding table of `vocabulary`; row 0 stays zero.

    It sees its table rounded to eight bits, as the file stores it.
    """

    def __init__(self) -> None:
        super().__init__()
        width, layers = TEXT.width, TEXT.layers
        self._names: dict[str, str] = {}
        self._add(TOKEN_TABLE, torch.randn(row_count(), width) * 0.1)
        self._add("embeddings.position_embedding.weight", torch.randn(TOKENS, width) * 0.02)
        for at in range(layers):
            layer = f"encoder.layers.{at}."
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                self._add_linear(f"{layer}self_attn.{name}", width, width)
            self._add_linear(f"{layer}mlp.fc1", width, 4 * width)
            self._add_linear(f"{layer}mlp.fc2", 4 * width, width)
            for name in ("layer_norm1", "layer_norm2"):
                self._add_norm(layer + name)
        self._add_norm("final_layer_norm")

    def forward(self, rows: Tensor) -> Tensor:
        """Return the last hidden states [n, 77, 64], normalised, of rows [n, 77] of the table."""
        return self.read_embedded(embed_tokens(self._weights(), rows))

    def read_embedded(self, embeds: Tensor) -> Tensor:
        """Return the last hidden states for embeddings [n, 77, 64] without positions."""
        nowhere = torch.zeros(len(embeds), dtype=torch.long)
        return run_clip(self._weights(), TEXT, embeds, nowhere, stop=-1).last

    def tensors(self) -> dict[str, Tensor]:
        """Return the parameters under Hugging Face names without `text_model.`."""
        return {name: self.get_parameter(stored).detach() for name, stored in self._names.items()}

    def _weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = {name: self.get_parameter(stored) for name, stored in self._names.items()}
        table = weights[TOKEN_TABLE]
        known = torch.ones(len(table), 1)
        known[0] = 0
        weights[TOKEN_TABLE] = _RoundToEighth.apply(table * known)
        return weights

    def _add(self, name: str, value: Tensor) -> None:
        stored = name.replace(".", "-")
        self._names[name] = stored
        self.register_parameter(stored, nn.Parameter(value))

    def _add_linear(self, name: str, inputs: int, outputs: int) -> None:
        layer = nn.Linear(inputs, outputs)
        nn.init.normal_(layer.weight, std=inputs**-0.5 * 0.5)
        self._add(f"{name}.weight", layer.weight.data)
        self._add(f"{name}.bias", torch.zeros(outputs))

    def _add_norm(self, name: str) -> None:
        self._add(f"{name}.weight", torch.ones(TEXT.width))
        self._add(f"{name}.bias", torch.zeros(TEXT.width))
