"""Lay text models out as files hold them: names of Hugging Face or open_clip, and their places in checkpoints.

Checkpoints of SD1.5 and SDXL have CLIP-L in Hugging Face's layout, without the projection that was not trained
with it; CLIP-H of SD2 and CLIP-G of SDXL are in open_clip's, with fused attention inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.models.exporting.entries import Entry, constant, joined
from comfyserverless.models.text.chunks import CHUNK_TOKENS
from comfyserverless.models.text.clip_files import OPEN_LAYER_NAMES, ClipKind

_PROJECTION = "text_projection.weight"
_LOGIT_SCALE = "logit_scale"
_TRAINED_SCALE = 4.6055
"""The logarithm of 100, which CLIP's scale was cut to in training; no text feature depends on it."""

_OPEN_FIXED = {
    "embeddings.token_embedding.weight": "token_embedding.weight",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm.weight": "ln_final.weight",
    "final_layer_norm.bias": "ln_final.bias",
}
_OPEN_INNER = {inner: opened for opened, inner in OPEN_LAYER_NAMES.items()}
_FUSED = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class ExportedClip:
    """A text model: its entries by parameter name (see ClipFile.recipes), and its scale if the file has one."""

    kind: ClipKind
    entries: Mapping[str, Entry]
    logit_scale: Entry | None = None


def own_file(clip: ExportedClip) -> dict[str, Entry]:
    """Return the entries of a file with one text model alone, in Hugging Face's layout."""
    made = {_hugging_face_name(name): entry for name, entry in clip.entries.items()}
    return made if clip.logit_scale is None else {**made, _LOGIT_SCALE: clip.logit_scale}


def checkpoint_clips(family: str, clips: Sequence[ExportedClip]) -> dict[str, Entry]:
    """Return the entries of text models in a checkpoint of a family, with their prefixes.

    Raises PromptError if the family has other text models.
    """
    places = _PLACES[family]
    given = [clip.kind for clip in clips]
    if sorted(given) != sorted(places):
        wanted, found = (" and ".join(f"CLIP-{kind.upper()}" for kind in kinds) for kinds in (places, given))
        raise PromptError(f"a checkpoint of the family {family} holds {wanted}, this text encoder is {found}")
    made: dict[str, Entry] = {}
    for clip in clips:
        prefix, lay_out = places[clip.kind]
        made |= {prefix + name: entry for name, entry in lay_out(clip).items()}
    return made


def _without_projection(clip: ExportedClip) -> dict[str, Entry]:
    return {_hugging_face_name(name): each for name, each in clip.entries.items() if name != _PROJECTION}


def _with_positions(clip: ExportedClip) -> dict[str, Entry]:
    positions = torch.arange(CHUNK_TOKENS)[None]
    return {**_without_projection(clip), "text_model.embeddings.position_ids": constant(positions)}


def _open(clip: ExportedClip) -> dict[str, Entry]:
    """Return the entries in open_clip's layout; the projection is stored with its sides swapped."""
    scale = clip.logit_scale or constant(torch.tensor(_TRAINED_SCALE))
    made = {new: clip.entries[name] for name, new in _OPEN_FIXED.items()} | {_LOGIT_SCALE: scale}
    if _PROJECTION in clip.entries:
        made["text_projection"] = clip.entries[_PROJECTION].turned()
    for name, entry in clip.entries.items():
        head, _, rest = name.removeprefix("encoder.layers.").partition(".")
        module, _, part = rest.rpartition(".")
        if not name.startswith("encoder.layers."):
            continue
        block = f"transformer.resblocks.{head}"
        if module in _OPEN_INNER:
            made[f"{block}.{_OPEN_INNER[module]}.{part}"] = entry
        elif module.endswith(_FUSED[0]):
            stem = f"encoder.layers.{head}.self_attn"
            parts = [clip.entries[f"{stem}.{each}.{part}"] for each in _FUSED]
            made[f"{block}.attn.in_proj_{part}"] = joined(parts)
    return made


def _hugging_face_name(name: str) -> str:
    return name if name == _PROJECTION else f"text_model.{name}"


_PLACES: Mapping[str, Mapping[ClipKind, tuple[str, Callable[[ExportedClip], dict[str, Entry]]]]] = {
    "sd15": {"l": ("cond_stage_model.transformer.", _without_projection)},
    "sd2": {"h": ("cond_stage_model.model.", _open)},
    "sdxl": {
        "l": ("conditioner.embedders.0.transformer.", _with_positions),
        "g": ("conditioner.embedders.1.model.", _open),
    },
    "sdxl_refiner": {"g": ("conditioner.embedders.0.model.", _open)},
}
"""Where checkpoints of each family keep which text model, and in which layout."""
