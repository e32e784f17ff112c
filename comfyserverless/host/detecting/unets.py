"""Describe networks, above all latent-diffusion U-Nets, by the names and shapes of their tensors.

Packs know it as `comfy.model_detection`. Only shapes are looked at: what is read from a header will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comfyserverless.host.detecting.known import FAMILIES, Family

_PREFIXES = ("model.diffusion_model.", "model.model.", "net.")


def unet_prefix_from_state_dict(state_dict: Mapping[str, Any]) -> str:
    """Return what the names of the network begin with in a file: what most of them do of those in use."""
    counts = {prefix: sum(name.startswith(prefix) for name in state_dict) for prefix in _PREFIXES}
    best = max(counts, key=lambda prefix: counts[prefix])
    return best if counts[best] > 5 else "model."


def count_blocks(state_dict_keys: Iterable[str], prefix_string: str) -> int:
    """Return how many numbers, from 0 on, some name begins with; prefix_string: with `{}` for the number."""
    names, count = list(state_dict_keys), 0
    while any(name.startswith(prefix_string.format(count)) for name in names):
        count += 1
    return count


def detect_unet_config(state_dict: Mapping[str, Any], key_prefix: str, *more: Any, **named: Any) -> Any:
    """Return the structure of a network; None for one that we do not know.

    state_dict: tensors, or anything with a `shape`; other values are passed over.
    """
    shapes = {
        name[len(key_prefix) :]: tuple(value.shape)
        for name, value in state_dict.items()
        if name.startswith(key_prefix) and hasattr(value, "shape")
    }
    if "input_blocks.0.0.weight" not in shapes:
        return _transformer(shapes)
    model_channels, in_channels = shapes["input_blocks.0.0.weight"][:2]
    levels = _levels(shapes, model_channels)
    first = next((at for at in ("input_blocks", "middle_block") if _attention(shapes, at)), "")
    return {
        "use_checkpoint": False,
        "image_size": 32,
        "use_spatial_transformer": True,
        "legacy": False,
        "adm_in_channels": shapes.get("label_emb.0.0.weight", (0, None))[1],
        "in_channels": in_channels,
        "out_channels": shapes.get("out.2.weight", (4,))[0],
        "model_channels": model_channels,
        "num_res_blocks": [len(level) for level in levels],
        "channel_mult": [level[0][0] if level else 1 for level in levels],
        "transformer_depth": [depth for level in levels for _, depth in level],
        "transformer_depth_output": _output_depths(shapes),
        "transformer_depth_middle": _middle_depth(shapes),
        "use_linear_in_transformer": len(shapes.get(_attention(shapes, first) + ".proj_in.weight", ())) == 2,
        "context_dim": _context_width(shapes, first),
        "use_temporal_attention": any("time_stack" in name for name in shapes),
        "use_temporal_resblock": any("time_stack" in name for name in shapes),
    }


def _transformer(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any] | None:
    """Return the structure of a diffusion transformer: those of Stable Diffusion 3, and Flux."""
    if "joint_blocks.0.context_block.attn.qkv.weight" in shapes:
        _, channels, patch, _ = shapes.get("x_embedder.proj.weight", (0, None, None, 0))
        depth = count_blocks(shapes, "joint_blocks.{}.")
        return {"in_channels": channels, "patch_size": patch, "depth": depth, "pos_embed_scaling_factor": None}
    if "double_blocks.0.img_attn.norm.key_norm.scale" in shapes:
        return {
            "image_model": "flux",
            "depth": count_blocks(shapes, "double_blocks.{}."),
            "depth_single_blocks": count_blocks(shapes, "single_blocks.{}."),
            "guidance_embed": "guidance_in.in_layer.weight" in shapes,
        }
    return None


def _levels(shapes: Mapping[str, tuple[int, ...]], model_channels: int) -> list[list[tuple[int, int]]]:
    """Return (multiple of the channels, transformer depth) of the residual blocks, level by level."""
    levels: list[list[tuple[int, int]]] = [[]]
    number = 1
    while True:
        block = f"input_blocks.{number}"
        if f"{block}.0.op.weight" in shapes:
            levels.append([])
        elif f"{block}.0.out_layers.3.weight" in shapes:
            multiple = shapes[f"{block}.0.out_layers.3.weight"][0] // model_channels
            levels[-1].append((multiple, _depth(shapes, f"{block}.1")))
        else:
            return levels
        number += 1


def _output_depths(shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """Return the transformer depths of the blocks that lead up, in the order of those that lead down."""
    depths = [_depth(shapes, f"output_blocks.{n}.1") for n in range(count_blocks(shapes, "output_blocks.{}."))]
    return depths[::-1]


def _depth(shapes: Mapping[str, tuple[int, ...]], stem: str) -> int:
    return count_blocks(shapes, stem + ".transformer_blocks.{}.")


def _middle_depth(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the depth of the middle block; -1 for one without attention, -2 if there is none."""
    if "middle_block.1.proj_in.weight" in shapes:
        return _depth(shapes, "middle_block.1")
    return -1 if "middle_block.0.in_layers.0.weight" in shapes else -2


def _attention(shapes: Mapping[str, tuple[int, ...]], root: str) -> str:
    """Return the first attention below a root, empty if there is none."""
    found = (name for name in shapes if root and name.startswith(root) and name.endswith(".proj_in.weight"))
    return next(found, "").removesuffix(".proj_in.weight")


def _context_width(shapes: Mapping[str, tuple[int, ...]], root: str) -> int | None:
    shape = shapes.get(f"{_attention(shapes, root)}.transformer_blocks.0.attn2.to_k.weight")
    return None if shape is None else shape[1]


def model_config_from_unet_config(
    unet_config: Any, state_dict: Mapping[str, Any] | None = None
) -> Family | None:
    """Return the family of a structure; None for one that we do not know."""
    if unet_config is None:
        return None
    return next((family(unet_config) for family in FAMILIES if family.matches(unet_config, state_dict)), None)


def model_config_from_unet(
    state_dict: Mapping[str, Any], unet_key_prefix: str, use_base_if_no_match: bool = False, *more: Any
) -> Family | None:
    """Return the family of a network in a file; None, or the base of all, for one that we do not know."""
    config = detect_unet_config(state_dict, unet_key_prefix)
    found = model_config_from_unet_config(config, state_dict)
    return Family(config) if found is None and use_base_if_no_match and config is not None else found
