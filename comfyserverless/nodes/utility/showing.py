"""Show values in the page: any value as text, images side by side, masks."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from comfyserverless.core.values import (
    ClipRef,
    ControlNetRef,
    FileRef,
    ModelRef,
    ObjectRef,
    TensorRef,
    UpscaleRef,
    VaeRef,
    Value,
    outputs_in,
    tensor_refs,
    transform,
)
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import preview_prefix, save_files
from comfyserverless.nodes.specs import socket
from comfyserverless.nodes.taking import Inputs, take_tensor
from comfyserverless.nodes.utility.values import MAX_TEXT_CHARS, resolved

_HIDDEN = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
_COMPRESSION = 1
_KINDS: dict[type, str] = {
    ModelRef: "MODEL",
    ClipRef: "CLIP",
    VaeRef: "VAE",
    ControlNetRef: "CONTROL_NET",
    UpscaleRef: "UPSCALE_MODEL",
}


async def _preview_any(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    text = await show_value(ctx, await resolved(ctx, inputs.get("source")))
    return NodeResult((text,), ui={"text": [text]})


async def show_value(ctx: LoweringContext, value: Value) -> str:
    """Return a value as text: as Python, lists and dicts as JSON, tensors as torch writes them."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    described = transform(value, _described)
    if tensor_refs(described) or outputs_in(described):
        shown = ctx.emit("text.show", value=described, limit=MAX_TEXT_CHARS)
        return str(await ctx.result(shown.out("text")))
    if isinstance(described, dict | list):
        return json.dumps(described, indent=4)[:MAX_TEXT_CHARS]
    return str(described)


def _described(leaf: Value) -> Value:
    """Replace a handle by words; tensors and plain values stay."""
    if isinstance(leaf, ObjectRef):
        return leaf.text or f"<{leaf.type_name} object>"
    if isinstance(leaf, FileRef):
        return leaf.path
    if isinstance(leaf, bytes):
        return repr(leaf[:100])
    kind = _KINDS.get(type(leaf))
    if kind is None:
        return leaf
    file = leaf.files[0] if isinstance(leaf, ClipRef) else leaf.file
    parts = [f"{kind} {PurePath(file.path).name}"]
    parts += [f"{word}: {len(found)}" for word in ("loras", "patches") if (found := getattr(leaf, word, ()))]
    return f"<{', '.join(parts)}>"


async def _compare(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    shown = {"a_images": "image_a", "b_images": "image_b"}
    ui = {
        key: await _preview(ctx, take_tensor(inputs, name), key[0])
        for key, name in shown.items()
        if inputs.get(name) is not None
    }
    return NodeResult(ui=ui)


async def _preview_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    mask = take_tensor(inputs, "mask", "MASK")
    images = ctx.emit("mask.to_image", mask=mask).out("images")
    return NodeResult((mask,), ui={"images": await _preview(ctx, images, "")})


async def _preview(ctx: LoweringContext, images: TensorRef | Any, suffix: str) -> list[Any]:
    place = ctx.destination("temp", preview_prefix(ctx.hidden.unique_id) + suffix)
    return await save_files(ctx, "image.save", place, "png", images=images, compress_level=_COMPRESSION)


NODES = (
    NodeDeclaration(
        name="PreviewAny",
        display_name="Preview as Text",
        category="utils",
        python_module="comfy_extras.nodes_preview_any",
        output_node=True,
        lower=_preview_any,
        inputs=(socket("source", "*"),),
        outputs=(OutputSpec("STRING"),),
    ),
    NodeDeclaration(
        name="ImageCompare",
        display_name="Compare Images",
        category="image",
        description="Two images, one on the other, with a slider between them.",
        python_module="comfy_extras.nodes_image_compare",
        output_node=True,
        lower=_compare,
        inputs=(
            InputSpec("compare_view", "IMAGECOMPARE"),
            InputSpec("image_a", "IMAGE", {}, "optional"),
            InputSpec("image_b", "IMAGE", {}, "optional"),
        ),
        hidden=_HIDDEN,
    ),
    NodeDeclaration(
        name="MaskPreview",
        display_name="Preview Mask",
        category="mask",
        python_module="comfy_extras.nodes_mask",
        output_node=True,
        lower=_preview_mask,
        inputs=(socket("mask", "MASK"),),
        outputs=(OutputSpec("MASK", "mask"),),
        hidden={"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]},
    ),
)
"""The declarations of this module, in the order of the node menu."""
