"""Write trained networks as files in the layouts that loaders know: Stable Diffusion 1.x, kohya, ControlNet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from comfyserverless.models.text.bpe import VOCAB_COUNT
from comfyserverless.training.networks.drawer import TEXT, TOKEN_TABLE
from comfyserverless.training.networks.slim_autoencoder import SlimAutoencoder
from comfyserverless.training.networks.widening import wide_state
from comfyserverless.training.scenery.vocabulary import token_ids
from comfyserverless.training.stages.denoiser import Drawer

Tensors = Mapping[str, Tensor]

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_FIXED = {
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "controlnet_cond_embedding.conv_in": "input_hint_block.0",
    "controlnet_cond_embedding.conv_out": "input_hint_block.14",
    "controlnet_mid_block": "middle_block_out.0",
}
_BLOCKS_PER_LEVEL = 1
_LEVELS = 3
_READABLE = 0o644


def original_name(name: str) -> str:
    """Return the original name of a parameter of the demo's U-Net or ControlNet, from its name in diffusers."""
    module, _, leaf = name.rpartition(".")
    if module in _FIXED:
        return f"{_FIXED[module]}.{leaf}"
    root, *rest = name.split(".")
    if root == "controlnet_down_blocks":
        return f"zero_convs.{rest[0]}.0.{leaf}"
    if root == "controlnet_cond_embedding":
        return f"input_hint_block.{2 * int(rest[1]) + 2}.{leaf}"
    if root == "mid_block":
        at = 1 if rest[0] == "attentions" else 2 * int(rest[1])
        return f"middle_block.{at}.{_inner(rest[2:])}"
    return _level_name(root, int(rest[0]), rest[1:], leaf)


def _level_name(root: str, level: int, rest: list[str], leaf: str) -> str:
    kind, at = rest[0], int(rest[1])
    first = level * (_BLOCKS_PER_LEVEL + 1)
    if kind == "downsamplers":
        return f"input_blocks.{first + _BLOCKS_PER_LEVEL + 1}.0.op.{leaf}"
    if kind == "upsamplers":
        place = 2 if level < _LEVELS - 1 else 1
        return f"output_blocks.{first + _BLOCKS_PER_LEVEL}.{place}.conv.{leaf}"
    stem, number = ("input_blocks", first + at + 1) if root == "down_blocks" else ("output_blocks", first + at)
    return f"{stem}.{number}.{int(kind == 'attentions')}.{_inner(rest[2:])}"


def _inner(rest: list[str]) -> str:
    return ".".join([_RESNET.get(rest[0], rest[0]), *rest[1:]])


def save_checkpoint(drawer: Drawer, autoencoder: SlimAutoencoder, path: Path) -> None:
    """Write the three networks into one file, fp16; the token table, mostly zeros, in eight bits."""
    tensors = {
        f"model.diffusion_model.{original_name(name)}": value
        for name, value in drawer.unet.state_dict().items()
    }
    tensors |= {f"first_stage_model.{name}": value for name, value in wide_state(autoencoder).items()}
    text = {f"cond_stage_model.transformer.text_model.{n}": v for n, v in drawer.text.tensors().items()}
    table = text.pop(f"cond_stage_model.transformer.text_model.{TOKEN_TABLE}")
    full = torch.zeros(VOCAB_COUNT, TEXT.width)
    full[torch.tensor(token_ids())] = table[1:]
    halves = _halves(tensors | text)
    halves[f"cond_stage_model.transformer.text_model.{TOKEN_TABLE}"] = full.to(torch.float8_e4m3fn)
    _write(halves, path)


def save_controlnet(net: nn.Module, path: Path) -> None:
    """Write a ControlNet in its original layout, fp16."""
    tensors = {f"control_model.{original_name(name)}": value for name, value in net.state_dict().items()}
    _write(_halves(tensors), path)


def save_lora(layers: Mapping[str, tuple[Tensor, Tensor]], path: Path) -> None:
    """Write pairs (down, up), by the name of their layer in diffusers, in kohya's layout; alpha is the rank."""
    tensors: dict[str, Tensor] = {}
    for name, (down, up) in layers.items():
        stem = "lora_unet_" + name.replace(".", "_")
        tensors[f"{stem}.lora_down.weight"], tensors[f"{stem}.lora_up.weight"] = down, up
        tensors[f"{stem}.alpha"] = torch.tensor(float(len(down)))
    _write(_halves(tensors), path, {"ss_network_module": "networks.lora", "ss_base_model_version": "sd_v1"})


def save_word(vectors: Tensor, path: Path) -> None:
    """Write the vectors [n, width] of a textual inversion, fp16."""
    _write(_halves({"emb_params": vectors}), path)


def _halves(tensors: Tensors) -> dict[str, Tensor]:
    return {name: value.detach().to(torch.float16).contiguous() for name, value in tensors.items()}


def _write(tensors: Tensors, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    for name, value in tensors.items():
        if not torch.isfinite(value.float()).all():
            raise ArithmeticError(f"{name} is not finite: the training has diverged")
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(path.name + ".tmp")
    save_file(dict(tensors), staging, dict(metadata or {}))
    staging.chmod(_READABLE)  # a temporary file is made for its owner alone; models are read by servers
    os.replace(staging, path)
