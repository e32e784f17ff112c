"""Change parts of pictures: latents with a noise mask, 1 where samplers work, and widened pictures.

A LATENT's `noise_mask` is a MASK of any size; samplers fit it to the latent.
"""

from __future__ import annotations

import msgspec

from comfyserverless.core.values import DIFFERENTIAL_DIFFUSION, Patch
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, socket, whole
from comfyserverless.nodes.taking import Inputs, take_latent, take_model, take_tensor, take_vae

_SIDES = ("left", "top", "right", "bottom")


async def _set_noise_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent = {**take_latent(inputs, "samples"), "noise_mask": take_tensor(inputs, "mask", "MASK")}
    return NodeResult((latent,))


async def _encode_for_inpaint(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    encoded = ctx.emit(
        "vae.encode_inpaint",
        vae=take_vae(inputs),
        pixels=take_tensor(inputs, "pixels"),
        mask=take_tensor(inputs, "mask", "MASK"),
        grow_by=inputs["grow_mask_by"],
    )
    return NodeResult(({"samples": encoded.out("samples"), "noise_mask": encoded.out("noise_mask")},))


async def _pad_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    widths = {name: inputs[name] for name in (*_SIDES, "feathering")}
    padded = ctx.emit("image.pad", images=take_tensor(inputs, "image"), **widths)
    return NodeResult((padded.out("images"), padded.out("mask")))


async def _change_gradually(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    model, strength = take_model(inputs), inputs.get("strength", 1.0)
    others = tuple(patch for patch in model.patches if patch.name != DIFFERENTIAL_DIFFUSION)
    patch = Patch(DIFFERENTIAL_DIFFUSION, (("strength", float(strength)),))
    return NodeResult((msgspec.structs.replace(model, patches=(*others, patch)),))


NODES = (
    NodeDeclaration(
        name="VAEEncodeForInpaint",
        display_name="VAE Encode (for Inpainting)",
        category="latent/inpaint",
        lower=_encode_for_inpaint,
        inputs=(
            socket("pixels", "IMAGE"),
            socket("vae", "VAE"),
            socket("mask", "MASK"),
            whole("grow_mask_by", 6, 0, 64, step=1),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="SetLatentNoiseMask",
        display_name="Set Latent Noise Mask",
        category="latent/inpaint",
        lower=_set_noise_mask,
        inputs=(socket("samples", "LATENT"), socket("mask", "MASK")),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="ImagePadForOutpaint",
        display_name="Pad Image for Outpainting",
        category="image",
        lower=_pad_image,
        inputs=(
            socket("image", "IMAGE"),
            *(whole(name, 0, 0, MAX_RESOLUTION_PX, step=8) for name in _SIDES),
            whole("feathering", 40, 0, MAX_RESOLUTION_PX, step=1),
        ),
        outputs=(OutputSpec("IMAGE"), OutputSpec("MASK")),
    ),
    NodeDeclaration(
        name="DifferentialDiffusion",
        display_name="Differential Diffusion",
        category="_for_testing",
        experimental=True,
        python_module="comfy_extras.nodes_differential_diffusion",
        lower=_change_gradually,
        inputs=(
            socket("model", "MODEL"),
            InputSpec(
                "strength", "FLOAT", {"default": 1.0, "min": 0.0, "max": 1.0, "step": 0.01}, section="optional"
            ),
        ),
        outputs=(OutputSpec("MODEL"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
