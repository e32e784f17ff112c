"""Know of a model what its file's header says; no weights are read."""

from __future__ import annotations

from functools import lru_cache

from comfyserverless.core.values import ClipRef, FileRef, ModelRef
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.families.registry import find_network, identify
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.text.clip import ClipConfig
from comfyserverless.models.text.clip_files import find_clip_models

_REMEMBERED = 64


def model_facts(ref: ModelRef) -> ModelFacts:
    """Return family, channels, scale and prediction of a diffusion model. Raises ModelFileError."""
    return _facts_of(ref.file)


@lru_cache(_REMEMBERED)
def _facts_of(file: FileRef) -> ModelFacts:
    with opened(file) as root:
        return identify(root)[1]


@lru_cache(_REMEMBERED)
def network_names(file: FileRef) -> tuple[str, ...]:
    """List the names of a diffusion network's tensors in the original layout, without prefix."""
    with opened(file) as root:
        return tuple(find_network(root))


@lru_cache(_REMEMBERED)
def text_models(ref: ClipRef) -> dict[str, ClipConfig]:
    """Return the text models of a handle by kind (`l`, `h`, `g`), in the order of their features."""
    found: dict[str, ClipConfig] = {}
    for file in ref.files:
        with opened(file) as root:
            found |= {model.kind: model.config for model in find_clip_models(root)}
    return {kind: found[kind] for kind in sorted(found, key="lhg".index)}


@lru_cache(_REMEMBERED)
def text_names(ref: ClipRef) -> dict[str, tuple[str, ...]]:
    """Return the parameters' names of each text model by kind."""
    names: dict[str, tuple[str, ...]] = {}
    for file in ref.files:
        with opened(file) as root:
            for model in find_clip_models(root):
                names[model.kind] = tuple(model.recipes())
    return names
