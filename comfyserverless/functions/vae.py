"""Move between pixels and latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

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
