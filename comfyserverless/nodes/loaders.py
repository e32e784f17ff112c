"""Load models: all symbolic, a loader gives frozen handles and reads nothing but the file's identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import (
    TINY_AUTOENCODERS,
    ClipRef,
    ControlNetRef,
    FileRef,
    LoraRef,
    ModelRef,
    VaeRef,
    WeightChange,
)
from comfyserverless.graph.declaration import (
    ChangeToken,
    FileCatalog,
    FileChoices,
    InputSpec,
    NodeDeclaration,
    OutputSpec,
)
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.loading.tiny import TINY_FOLDER, tiny_choices, tiny_files, vae_token
from comfyserverless.nodes.specs import combo, model_file, number, socket
from comfyserverless.nodes.taking import Inputs, take_clip, take_model

_CLIP_TYPES = (
    "stable_diffusion",
    "stable_cascade",
    "sd3",
    "stable_audio",
    "mochi",
    "ltxv",
    "pixart",
    "cosmos",
    "lumina2",
    "wan",
    "hidream",
    "chroma",
    "ace",
    "omnigen2",
    "qwen_image",
    "hunyuan_image",
    "flux2",
    "ovis",
)
_CLIP_PAIR_TYPES = (
    "sdxl",
    "sd3",
    "flux",
    "hunyuan_video",
    "hidream",
    "hunyuan_image",
    "hunyuan_video_15",
    "kandinsky5",
    "kandinsky5_image",
    "ltxv",
    "newbie",
)
_OTHER_TOKENS = frozenset({"stable_cascade", "sd3", "hidream"})
"""Types under which a CLIP file is read as something else; under all others it is what its tensors say."""

_LORA_STRENGTH = {"low": -100.0, "high": 100.0, "step": 0.01}


async def _load_checkpoint(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    file = ctx.find_file("checkpoints", inputs["ckpt_name"])
    clip = ClipRef((file,), embeddings=ctx.embedding_folders())
    return NodeResult((ModelRef(file), clip, VaeRef(file)))


async def _load_vae(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    name = inputs["vae_name"]
    if name in TINY_AUTOENCODERS:
        tiny = tiny_files(ctx.file_names(TINY_FOLDER)).get(name)
        if tiny is not None:
            encoder, decoder = (ctx.find_file(TINY_FOLDER, file) for file in tiny)
            return NodeResult((VaeRef(decoder, encoder, name),))
    return NodeResult((VaeRef(ctx.find_file("vae", name)),))


async def _load_control_net(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((ControlNetRef(ctx.find_file("controlnet", inputs["control_net_name"])),))


async def _load_clip(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    if inputs["type"] in _OTHER_TOKENS:
        raise PromptError(f"CLIPLoader: text encoders of the type {inputs['type']!r} are not supported")
    file = ctx.find_file("text_encoders", inputs["clip_name"])
    return NodeResult((ClipRef((file,), embeddings=ctx.embedding_folders()),))


async def _load_clip_pair(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    if inputs["type"] != "sdxl":
        raise PromptError(f"DualCLIPLoader: text encoders of the type {inputs['type']!r} are not supported")
    files = tuple(ctx.find_file("text_encoders", inputs[name]) for name in ("clip_name1", "clip_name2"))
    return NodeResult((ClipRef(files, embeddings=ctx.embedding_folders()),))


async def _load_diffusion_model(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    if inputs["weight_dtype"] != "default":
        raise PromptError(
            f"UNETLoader: weights run in the type that fits the device, not in {inputs['weight_dtype']!r};"
            " supported: 'default'"
        )
    return NodeResult((ModelRef(ctx.find_file("diffusion_models", inputs["unet_name"])),))


async def _load_lora(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    model, clip = take_model(inputs), take_clip(inputs)
    strengths = inputs["strength_model"], inputs["strength_clip"]
    if strengths == (0, 0):  # ComfyUI does not open the file then
        return NodeResult((model, clip))
    file = ctx.find_file("loras", inputs["lora_name"])
    model = msgspec.structs.replace(model, loras=_with_lora(model.loras, file, strengths[0]))
    clip = msgspec.structs.replace(clip, loras=_with_lora(clip.loras, file, strengths[1]))
    return NodeResult((model, clip))


async def _load_lora_model_only(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    model, strength = take_model(inputs), inputs["strength_model"]
    if strength == 0:
        return NodeResult((model,))
    file = ctx.find_file("loras", inputs["lora_name"])
    return NodeResult((msgspec.structs.replace(model, loras=_with_lora(model.loras, file, strength)),))


def file_token(name: str, folder: str) -> ChangeToken:
    """Return a change token of the model file that the input `name` names: its path, size and time.

    With it a file that was replaced gives new handles, and so a new picture; ComfyUI keeps the old one, whose
    weights it still holds, but here parts of both could meet: handles outlive the weights.
    """

    def token(catalog: FileCatalog, values: Mapping[str, Any]) -> Any:
        value = values.get(name)
        return catalog.find(folder, value) if isinstance(value, str) else None

    return token


def _pair_token(catalog: FileCatalog, values: Mapping[str, Any]) -> Any:
    """Return a change token of both files of a pair of text encoders."""
    return [file_token(name, "text_encoders")(catalog, values) for name in ("clip_name1", "clip_name2")]


MAX_LORAS = 256
"""How many LoRAs one handle holds: a list that grows with every node of a chain must end."""


def _with_lora(loras: tuple[WeightChange, ...], file: FileRef, strength: float) -> tuple[WeightChange, ...]:
    """Append a LoRA; strength 0 changes no weight, so the handle stays equal to the one without it."""
    if strength == 0:
        return loras
    if len(loras) >= MAX_LORAS:
        raise PromptError(f"More than {MAX_LORAS} LoRAs are applied to one model")
    return (*loras, LoraRef(file, float(strength)))


_DEVICE = InputSpec("device", ("default", "cpu"), {"advanced": True}, section="optional")

NODES = (
    NodeDeclaration(
        name="CheckpointLoaderSimple",
        display_name="Load Checkpoint",
        category="loaders",
        lower=_load_checkpoint,
        is_changed=file_token("ckpt_name", "checkpoints"),
        inputs=(model_file("ckpt_name", "checkpoints"),),
        outputs=(OutputSpec("MODEL"), OutputSpec("CLIP"), OutputSpec("VAE")),
    ),
    NodeDeclaration(
        name="VAELoader",
        display_name="Load VAE",
        category="loaders",
        lower=_load_vae,
        is_changed=vae_token,
        inputs=(InputSpec("vae_name", FileChoices("vae", tiny_choices)),),
        outputs=(OutputSpec("VAE"),),
    ),
    NodeDeclaration(
        name="CLIPLoader",
        display_name="Load CLIP",
        category="advanced/loaders",
        lower=_load_clip,
        is_changed=file_token("clip_name", "text_encoders"),
        inputs=(
            model_file("clip_name", "text_encoders"),
            combo("type", _CLIP_TYPES),
            _DEVICE,
        ),
        outputs=(OutputSpec("CLIP"),),
    ),
    NodeDeclaration(
        name="DualCLIPLoader",
        display_name="DualCLIPLoader",
        category="advanced/loaders",
        lower=_load_clip_pair,
        is_changed=_pair_token,
        inputs=(
            model_file("clip_name1", "text_encoders"),
            model_file("clip_name2", "text_encoders"),
            combo("type", _CLIP_PAIR_TYPES),
            _DEVICE,
        ),
        outputs=(OutputSpec("CLIP"),),
    ),
    NodeDeclaration(
        name="UNETLoader",
        display_name="Load Diffusion Model",
        category="advanced/loaders",
        lower=_load_diffusion_model,
        is_changed=file_token("unet_name", "diffusion_models"),
        inputs=(
            model_file("unet_name", "diffusion_models"),
            combo("weight_dtype", ("default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2")),
        ),
        outputs=(OutputSpec("MODEL"),),
    ),
    NodeDeclaration(
        name="LoraLoader",
        display_name="Load LoRA",
        category="loaders",
        lower=_load_lora,
        is_changed=file_token("lora_name", "loras"),
        inputs=(
            socket("model", "MODEL"),
            socket("clip", "CLIP"),
            model_file("lora_name", "loras"),
            number("strength_model", 1.0, **_LORA_STRENGTH),
            number("strength_clip", 1.0, **_LORA_STRENGTH),
        ),
        outputs=(OutputSpec("MODEL"), OutputSpec("CLIP")),
    ),
    NodeDeclaration(
        name="LoraLoaderModelOnly",
        display_name="LoraLoaderModelOnly",
        category="loaders",
        lower=_load_lora_model_only,
        is_changed=file_token("lora_name", "loras"),
        inputs=(
            socket("model", "MODEL"),
            model_file("lora_name", "loras"),
            number("strength_model", 1.0, **_LORA_STRENGTH),
        ),
        outputs=(OutputSpec("MODEL"),),
    ),
    NodeDeclaration(
        name="ControlNetLoader",
        display_name="Load ControlNet Model",
        category="loaders",
        lower=_load_control_net,
        is_changed=file_token("control_net_name", "controlnet"),
        inputs=(model_file("control_net_name", "controlnet"),),
        outputs=(OutputSpec("CONTROL_NET"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
