"""Stand for a CLIP (`comfy.sd.CLIP`): text is cut into tokens here, and encoded on the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from comfyserverless.core import values
from comfyserverless.core.values import ClipRef
from comfyserverless.host.encoders.tokens import Tokenizer, plain_tokens
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.library.calls import run_node
from comfyserverless.host.models.adapters import as_changes, clip_key_prefix
from comfyserverless.host.models.facts import text_models, text_names
from comfyserverless.host.models.options import copy_options, new_options
from comfyserverless.host.models.weights import all_weights

_CPU = torch.device("cpu")


class ClipPatcher:
    """What packs find under `CLIP.patcher`."""

    def __init__(self, clip: CLIP) -> None:
        self._clip = clip
        self.model_options: dict[str, Any] = new_options()
        self.load_device = self.offload_device = _CPU
        self.model = clip.cond_stage_model
        self.patches: dict[str, list[Any]] = {}

    def add_patches(
        self, patches: Mapping[Any, Any], strength_patch: float = 1.0, strength_model: float = 1.0
    ) -> list[Any]:
        """Change weights; returns the keys that are known."""
        return self._clip.add_patches(patches, strength_patch, strength_model)

    def model_size(self) -> int:
        """Return the bytes of the files."""
        return sum(file.size_bytes for file in self._clip.ref.files)

    def clone(self) -> ClipPatcher:
        """Return the patcher of a clone."""
        return self._clip.clone().patcher

    def is_clone(self, other: Any) -> bool:
        """Tell whether another one is of the same files."""
        return getattr(getattr(other, "_clip", None), "ref", ClipRef(())).files == self._clip.ref.files

    def get_model_object(self, name: str) -> Any:
        """Return a part of the text models."""
        return getattr(self.model, name)

    def set_model_options(self, options: Mapping[str, Any]) -> None:
        """Refuse: text models take no options."""
        refuse("CLIP.patcher.set_model_options")


class TextModels:
    """What packs find under `CLIP.cond_stage_model`: which text models there are."""

    def __init__(self, ref: ClipRef, kinds: Sequence[str]) -> None:
        self.ref = ref
        self.clip_name = kinds[0] if kinds else "l"
        self.clip = f"clip_{self.clip_name}"
        for kind in kinds:
            setattr(self, f"clip_{kind}", TextModel(kind))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"comfyserverless has no cond_stage_model.{name} here: text models run on the workers", name=name
        )


class TextModel:
    """One text model: its name, and the layer that is taken."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.layer_idx: int | None = None
        self.special_tokens = {"start": 49406, "end": 49407, "pad": 49407 if kind == "l" else 0}


class CLIP:
    """Text models of a handle; a clone can be changed on its own."""

    def __init__(self, ref: ClipRef) -> None:
        self.ref = ref
        kinds: Any = list(text_models(ref))
        self.cond_stage_model: Any = TextModels(ref, kinds)
        self.tokenizer: Any = Tokenizer(kinds, ref.embeddings)
        self.patcher = ClipPatcher(self)
        self.use_clip_schedule = False
        self.apply_hooks_to_conds: Any = None
        self.tokenizer_options: dict[str, Any] = {}

    @classmethod
    def of(cls, ref: ClipRef) -> CLIP:
        """Return the object for a handle."""
        return cls(ref)

    def to_ref(self) -> ClipRef:
        """Return the handle."""
        return self.ref

    @property
    def layer_idx(self) -> int | None:
        """Return the layer that is taken, None for the family's own."""
        return self.ref.last_layer

    @layer_idx.setter
    def layer_idx(self, layer: int | None) -> None:
        self.ref = msgspec.structs.replace(self.ref, last_layer=layer)

    def clone(self) -> CLIP:
        """Return a copy that can be changed on its own."""
        made = type(self)(self.ref)
        made.tokenizer = self.tokenizer
        made.patcher.model_options = copy_options(self.patcher.model_options)
        made.patcher.patches = {key: list(patches) for key, patches in self.patcher.patches.items()}
        made.use_clip_schedule, made.apply_hooks_to_conds = self.use_clip_schedule, self.apply_hooks_to_conds
        made.tokenizer_options = dict(self.tokenizer_options)
        return made

    def clip_layer(self, layer_idx: int) -> None:
        """Take another layer: -1 is the last."""
        self.layer_idx = layer_idx

    def set_tokenizer_option(self, option_name: str, value: Any) -> None:
        """Keep an option of the tokenizer."""
        self.tokenizer_options[option_name] = value

    def add_patches(
        self, patches: Mapping[Any, Any], strength_patch: float = 1.0, strength_model: float = 1.0
    ) -> list[Any]:
        """Change weights; returns the keys that are known."""
        if strength_model != 1.0:
            refuse("CLIP.add_patches with a strength_model", "merge text encoders with the CLIPMerge nodes")
        known = {clip_key_prefix(kind) + name for kind, names in text_names(self.ref).items() for name in names}
        accepted = {key: value for key, value in patches.items() if key in known}
        whole = patches if len(accepted) == len(patches) else accepted
        changes = as_changes(self.ref, whole, strength_patch)
        self.ref = msgspec.structs.replace(self.ref, loras=(*self.ref.loras, *changes))
        for key, value in accepted.items():
            self.patcher.patches.setdefault(key, []).append((strength_patch, value, strength_model, None, None))
        return list(accepted)

    def get_key_patches(self) -> dict[str, Any]:
        """Refuse: text models are merged with nodes."""
        return refuse("CLIP.get_key_patches", "merge text encoders with the CLIPMerge nodes")

    def tokenize(self, text: str, return_word_ids: bool = False, **kwargs: Any) -> Any:
        """Cut a text into tokens for each text model."""
        return self.tokenizer.tokenize_with_weights(text, return_word_ids, **kwargs)

    def encode_from_tokens(self, tokens: Any, return_pooled: Any = False, return_dict: bool = False) -> Any:
        """Encode tokens: cond [1, T, D], with pooled [1, P] or as a dict with `cond` and `pooled_output`."""
        cond, pooled = self._encode(tokens)
        if return_dict:
            return {"cond": cond, "pooled_output": pooled}
        return (cond, pooled) if return_pooled else cond

    def encode_from_tokens_scheduled(
        self, tokens: Any, unprojected: bool = False, add_dict: Mapping[str, Any] | None = None, **more: Any
    ) -> list[Any]:
        """Encode tokens to a conditioning whose entries have the values of add_dict, too."""
        cond, pooled = self._encode(tokens)
        return [[cond, {"pooled_output": pooled, **(add_dict or {})}]]

    def encode(self, text: str) -> Any:
        """Encode a text."""
        return self.encode_from_tokens(self.tokenize(text))

    def _encode(self, tokens: Any) -> tuple[Tensor, Tensor | None]:
        cond, pooled = run_node("HostEncodeTokens", clip=self, tokens=plain_tokens(tokens))
        return cond, pooled

    def load_model(self, *args: Any) -> ClipPatcher:
        """Return the patcher: workers load what they run."""
        return self.patcher

    def get_sd(self) -> dict[str, Tensor]:
        """Read the text models' weights."""
        weights: dict[str, Tensor] = {}
        for file in self.ref.files:
            weights |= all_weights(file)
        return weights

    def load_sd(self, sd: Any, full_model: bool = False) -> Any:
        """Refuse: text models are what their files say."""
        refuse("CLIP.load_sd")

    def add_hooks_to_dict(self, pooled_dict: dict[str, Any]) -> None:
        """Do nothing: there are no hooks on text models."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: no text model of this server writes text."""
        refuse("CLIP.generate")

    def __reduce__(self) -> Any:
        return _from_bytes, (values.encode(self.ref),)


def _from_bytes(data: bytes) -> CLIP:
    return CLIP.of(values.decode(data))
