"""Load models by file for packs (`comfy.sd`): handles are made, nothing is read but headers.

A state dict that came unchanged from a file stands for that file; any other one is written to a file of its
own.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec

from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, UpscaleRef, VaeRef
from comfyserverless.host.encoders.autoencoder import VAE
from comfyserverless.host.encoders.control import ControlNet
from comfyserverless.host.encoders.text import CLIP
from comfyserverless.host.encoders.upscaler import UpscaleModel
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models.origins import file_of
from comfyserverless.host.models.patcher import ModelPatcher
from comfyserverless.host.models.scratch import file_ref

CLIPType: Any = enum.Enum(
    "CLIPType",
    "STABLE_DIFFUSION STABLE_CASCADE SD3 STABLE_AUDIO HUNYUAN_DIT FLUX MOCHI LTXV HUNYUAN_VIDEO PIXART COSMOS"
    " LUMINA2 WAN HIDREAM CHROMA ACE OMNIGEN2 QWEN_IMAGE HUNYUAN_IMAGE HUNYUAN_VIDEO_15 OVIS KANDINSKY5"
    " KANDINSKY5_IMAGE NEWBIE FLUX2",
)
"""What a text encoder is for; files of this server say themselves what they hold."""


def _embedding_folders(given: Any) -> tuple[str, ...]:
    if given is None:
        return tuple(import_module("folder_paths").get_folder_paths("embeddings"))
    return (given,) if isinstance(given, str) else tuple(given)


def load_checkpoint_guess_config(
    ckpt_path: str,
    output_vae: bool = True,
    output_clip: bool = True,
    output_clipvision: bool = False,
    embedding_directory: Any = None,
    output_model: bool = True,
    model_options: Mapping[str, Any] | None = None,
    te_model_options: Mapping[str, Any] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Return (model, clip, vae, None) of a checkpoint."""
    return _of_checkpoint(file_ref(ckpt_path), (output_model, output_clip, output_vae), embedding_directory)


def load_state_dict_guess_config(
    sd: Mapping[str, Any],
    output_vae: bool = True,
    output_clip: bool = True,
    output_clipvision: bool = False,
    embedding_directory: Any = None,
    output_model: bool = True,
    **more: Any,
) -> tuple[Any, Any, Any, Any]:
    """Return (model, clip, vae, None) of a checkpoint's tensors."""
    return _of_checkpoint(file_of(sd), (output_model, output_clip, output_vae), embedding_directory)


def load_checkpoint(
    config_path: Any = None,
    ckpt_path: Any = None,
    output_vae: bool = True,
    output_clip: bool = True,
    embedding_directory: Any = None,
    **more: Any,
) -> tuple[Any, Any, Any]:
    """Return (model, clip, vae) of a checkpoint; its configuration is read from the file itself."""
    return _of_checkpoint(file_ref(ckpt_path), (True, output_clip, output_vae), embedding_directory)[:3]


def _of_checkpoint(
    file: FileRef, wanted: tuple[bool, bool, bool], embeddings: Any
) -> tuple[Any, Any, Any, Any]:
    has_model, has_clip, has_vae = wanted
    return (
        ModelPatcher.of(ModelRef(file)) if has_model else None,
        CLIP.of(ClipRef((file,), embeddings=_embedding_folders(embeddings))) if has_clip else None,
        VAE.of(VaeRef(file)) if has_vae else None,
        None,
    )


def load_diffusion_model(
    unet_path: str, model_options: Mapping[str, Any] | None = None, **more: Any
) -> ModelPatcher:
    """Return the diffusion model of a file. Raises ModelFileError for unknown ones."""
    return ModelPatcher.of(ModelRef(file_ref(unet_path)))


def load_diffusion_model_state_dict(sd: Mapping[str, Any], *args: Any, **more: Any) -> ModelPatcher:
    """Return the diffusion model that tensors make up."""
    return ModelPatcher.of(ModelRef(file_of(sd)))


def load_clip(
    ckpt_paths: Sequence[str],
    embedding_directory: Any = None,
    clip_type: Any = None,
    model_options: Mapping[str, Any] | None = None,
) -> CLIP:
    """Return the text models of files."""
    files = tuple(file_ref(path) for path in ckpt_paths)
    return CLIP.of(ClipRef(files, embeddings=_embedding_folders(embedding_directory)))


def load_text_encoder_state_dicts(
    state_dicts: Sequence[Mapping[str, Any]],
    embedding_directory: Any = None,
    clip_type: Any = None,
    model_options: Mapping[str, Any] | None = None,
) -> CLIP:
    """Return the text models that tensors make up."""
    files = tuple(file_of(sd) for sd in state_dicts)
    return CLIP.of(ClipRef(files, embeddings=_embedding_folders(embedding_directory)))


def load_lora_for_models(
    model: ModelPatcher | None,
    clip: CLIP | None,
    lora: Mapping[str, Any],
    strength_model: float,
    strength_clip: float,
) -> tuple[ModelPatcher | None, CLIP | None]:
    """Return clones with an adapter's tensors, each at its strength; either may be None."""
    file = file_of(lora)
    new_model = None if model is None else model.clone()
    if new_model is not None:
        new_model.add_adapter(LoraRef(file, float(strength_model)))
    new_clip = None if clip is None else clip.clone()
    if new_clip is not None:
        lora_ref = LoraRef(file, float(strength_clip))
        new_clip.ref = msgspec.structs.replace(new_clip.ref, loras=(*new_clip.ref.loras, lora_ref))
    return new_model, new_clip


def load_controlnet(
    ckpt_path: str, model: Any = None, model_options: Mapping[str, Any] | None = None
) -> ControlNet:
    """Return the ControlNet of a file."""
    return ControlNet.of(ControlNetRef(file_ref(ckpt_path)))


def load_controlnet_state_dict(
    state_dict: Mapping[str, Any], model: Any = None, model_options: Mapping[str, Any] | None = None
) -> ControlNet:
    """Return the ControlNet that tensors make up."""
    return ControlNet.of(ControlNetRef(file_of(state_dict)))


def load_upscaler(state_dict: Mapping[str, Any]) -> UpscaleModel:
    """Return the upscaler that tensors make up."""
    return UpscaleModel.of(UpscaleRef(file_of(state_dict)))


def save_checkpoint(*args: Any, **kwargs: Any) -> None:
    """Refuse: merged weights are on the workers."""
    refuse("comfy.sd.save_checkpoint", "merged weights are on the workers")
