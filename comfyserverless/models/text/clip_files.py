"""Find CLIP text models in checkpoints and in files of their own, and give them one naming.

Both layouts in use are read: Hugging Face's (`text_model.encoder.layers...`, with or without the leading
`text_model.`) and open_clip's (`transformer.resblocks...`, with fused attention inputs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.layers import Recipe
from comfyserverless.models.text.bpe import VOCAB_COUNT
from comfyserverless.models.text.chunks import CHUNK_TOKENS
from comfyserverless.models.text.clip import HEAD_WIDTH, ClipConfig

ClipKind = Literal["l", "h", "g"]
"""Which of the three released sizes a model is built like: OpenAI's L, open_clip's H and G."""

_PREFIXES = (
    "cond_stage_model.transformer.",
    "cond_stage_model.model.",
    "conditioner.embedders.0.transformer.",
    "conditioner.embedders.0.model.",
    "conditioner.embedders.1.model.",
    "text_encoders.clip_l.transformer.",
    "text_encoders.clip_g.transformer.",
    "clip_l.transformer.",
    "clip_g.transformer.",
    "",
)
_H_LAYERS, _G_LAYERS = 23, 31
OPEN_LAYER_NAMES = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
"""Modules of a layer in open_clip's naming and in Hugging Face's, but for the fused attention inputs."""

_LEAST_ROWS = {
    "embeddings.token_embedding.weight": VOCAB_COUNT,
    "embeddings.position_embedding.weight": CHUNK_TOKENS,
}


class ClipFile:
    """One text model inside a file, found by its names; nothing is loaded."""

    def __init__(self, weights: Weights) -> None:
        self._is_open = "transformer.resblocks.0.ln_1.weight" in weights
        self._weights = weights if self._is_open else _without_text_model(weights)
        stem = "transformer.resblocks" if self._is_open else "encoder.layers"
        self._stem = stem
        layers = _count_blocks(
            self._weights, f"{stem}.{{}}.{'ln_1' if self._is_open else 'layer_norm1'}.weight"
        )
        width = self._weights.length(
            "positional_embedding" if self._is_open else "embeddings.position_embedding.weight", 1
        )
        self.kind: ClipKind = "g" if layers >= _G_LAYERS else "h" if layers >= _H_LAYERS else "l"
        self.config = ClipConfig(width, layers, is_quick_gelu=self.kind == "l")

    def recipes(self) -> dict[str, Recipe]:
        """Return where the weights come from, under Hugging Face names without `text_model.`.

        They keep the file's types; eight-bit ones become float16. Raises ModelFileError if a tensor is missing
        or of another shape.
        """
        recipes = dict(self._open_recipes() if self._is_open else self._hugging_face_recipes())
        _check(self._weights.path, self.config, {name: recipe.shape for name, recipe in recipes.items()})
        return recipes

    def _recipe(self, source: str) -> Recipe:
        info = self._weights.info(source)
        return Recipe(
            self._weights, source, info.shape, torch.float16 if info.dtype.itemsize == 1 else info.dtype
        )

    def _hugging_face_recipes(self) -> Iterator[tuple[str, Recipe]]:
        for name in self._weights:
            is_wanted = name.startswith(("encoder.", "embeddings.", "final_", "text_projection"))
            if is_wanted and not name.endswith("position_ids"):
                yield name, self._recipe(name)

    def _open_recipes(self) -> Iterator[tuple[str, Recipe]]:
        yield "embeddings.token_embedding.weight", self._recipe("token_embedding.weight")
        yield "embeddings.position_embedding.weight", self._recipe("positional_embedding")
        for layer in range(self.config.layers):
            yield from self._open_layer(f"{self._stem}.{layer}.", f"encoder.layers.{layer}.")
        for part in ("weight", "bias"):
            yield f"final_layer_norm.{part}", self._recipe(f"ln_final.{part}")
        if "text_projection" in self._weights:
            self._weights.length("text_projection", 1)
            turned = self._recipe("text_projection")
            yield "text_projection.weight", replace(turned, shape=turned.shape[::-1], is_transposed=True)
        elif "text_projection.weight" in self._weights:
            yield "text_projection.weight", self._recipe("text_projection.weight")

    def _open_layer(self, old: str, new: str) -> Iterator[tuple[str, Recipe]]:
        for part in ("weight", "bias"):
            fused = self._recipe(f"{old}attn.in_proj_{part}")
            for at, name in enumerate("qkv"):
                begin, end = (min(self.config.width * each, *fused.shape[:1]) for each in (at, at + 1))
                shape = (end - begin, *fused.shape[1:])
                yield f"{new}self_attn.{name}_proj.{part}", replace(fused, shape=shape, rows=(begin, end))
            for open_name, name in OPEN_LAYER_NAMES.items():
                yield f"{new}{name}.{part}", self._recipe(f"{old}{open_name}.{part}")


def find_clip_models(weights: Weights) -> list[ClipFile]:
    """Return every CLIP text model of a file, in the order of the prefixes that files use.

    Raises ModelFileError if there is none.
    """
    found = [ClipFile(part) for prefix in _PREFIXES if _is_clip(part := weights.below(prefix))]
    if not found:
        raise ModelFileError(f"{weights.path}: holds no CLIP text encoder (supported: CLIP-L, CLIP-H, CLIP-G)")
    return found


def _check(path: str, config: ClipConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a text model that cannot run: tensors that are missing or do not fit its width."""
    needed = _shapes(config)
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise ModelFileError(f"{path}: the text encoder lacks {len(missing)} tensors: {missing[0]} ...")
    if config.width % config.heads:
        raise ModelFileError(f"{path}: the text encoder is {config.width} wide, no multiple of {HEAD_WIDTH}")
    for name, shape in shapes.items():
        wanted = needed.get(name, (None, config.width) if name == "text_projection.weight" else shape)
        fits = len(wanted) == len(shape) and all(
            side is None or side == length for side, length in zip(wanted, shape, strict=True)
        )
        if not fits:
            shown = ", ".join("any" if side is None else str(side) for side in wanted)
            raise ModelFileError(
                f"{path}: the text encoder's {name} has the shape {list(shape)}, not [{shown}]"
            )
    for name, least in _LEAST_ROWS.items():
        if shapes[name][0] < least:
            raise ModelFileError(f"{path}: the text encoder's {name} has {shapes[name][0]} rows, not {least}")


def _shapes(config: ClipConfig) -> dict[str, tuple[int | None, ...]]:
    """List the tensors without which a text model cannot run, with their shapes; None is for any length."""
    d = config.width
    layer: dict[str, tuple[int | None, ...]] = {
        **{f"self_attn.{name}_proj": (d, d) for name in ("q", "k", "v", "out")},
        "layer_norm1": (d,),
        "layer_norm2": (d,),
        "mlp.fc1": (None, d),
        "mlp.fc2": (d, None),
    }
    shapes: dict[str, tuple[int | None, ...]] = {
        "embeddings.token_embedding.weight": (None, d),
        "embeddings.position_embedding.weight": (None, d),
    }
    for number in range(config.layers):
        for part, shape in layer.items():
            shapes[f"encoder.layers.{number}.{part}.weight"] = shape
            shapes[f"encoder.layers.{number}.{part}.bias"] = shape[:1]
    return shapes | {"final_layer_norm.weight": (d,), "final_layer_norm.bias": (d,)}


def _is_clip(weights: Weights) -> bool:
    marks = ("text_model.encoder.layers.0.layer_norm1.weight", "encoder.layers.0.layer_norm1.weight")
    return any(mark in weights for mark in (*marks, "transformer.resblocks.0.ln_1.weight"))


def _without_text_model(weights: Weights) -> Weights:
    return weights.renamed({name: name.removeprefix("text_model.") for name in weights})


def _count_blocks(weights: Weights, pattern: str) -> int:
    count = 0
    while pattern.format(count) in weights:
        count += 1
    return count
