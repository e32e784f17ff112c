"""Move between pixels and latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.functions.images.erasing import erase
from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class VaeDecode(ModelFn):
    """Turn latents into images."""

    name: ClassVar[str] = "vae.decode"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("vae")
        io.add_input("samples")
        io.add_output("images")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`."""
        return {"vae": pool.vae(inputs["vae"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3] float32 in 0..1 of samples [B, C, h, w]."""
        return {"images": components["vae"].decode(inputs["samples"])}


class VaeEncode(ModelFn):
    """Turn images into latents."""

    name: ClassVar[str] = "vae.encode"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("vae")
        io.add_input("pixels")
        io.add_output("samples")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`."""
        return {"vae": pool.vae(inputs["vae"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples [B, C, h, w] float32 of pixels [B, H, W, 3 or 4] in 0..1; alpha is dropped."""
        return {"samples": components["vae"].encode(inputs["pixels"][..., :3])}


class VaeEncodeInpaint(ModelFn):
    """Turn images into latents with the masked part gone, and a noise mask for it."""

    name: ClassVar[str] = "vae.encode_inpaint"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("vae", "pixels", "mask", "grow_by"):
            io.add_input(port)
        io.add_output("samples")
        io.add_output("noise_mask")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`."""
        return {"vae": pool.vae(inputs["vae"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples [B, C, h, w] of pixels that are gray where masked, and a noise mask of 0 and 1.

        The noise mask, [N, 1, H, W], has the size of what was encoded, and is wider than the mask by about half
        of `grow_by` pixels, so that what is painted joins without a seam. Raises PromptError if there are
        several masks, but not one per image.
        """
        vae = components["vae"]
        erased, masks = erase(inputs["pixels"], inputs["mask"], vae.downscale_px)
        noise_mask = _widen(masks, inputs["grow_by"]).round()
        return {"samples": vae.encode(erased), "noise_mask": noise_mask}


def _widen(masks: Tensor, by_px: int) -> Tensor:
    """Set to 1 what has a masked pixel in the square of by_px around it; an even square lies one pixel back."""
    if by_px == 0:
        return masks
    widened = functional.max_pool2d(masks.round(), by_px, stride=1, padding=by_px // 2).clamp(0.0, 1.0)
    return widened[..., : masks.shape[2], : masks.shape[3]]
