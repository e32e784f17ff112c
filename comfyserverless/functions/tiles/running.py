"""Run a network on some tiles of one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from comfyserverless.models.tiles.blending import cut
from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class _TilesFn(ModelFn):
    """A function that takes a model, a batch, and which tiles of which item are meant."""

    takes: ClassVar[tuple[str, str]]

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in (*self.takes, "item", "boxes"):
            io.add_input(port)
        io.add_output("tiles")


class VaeDecodeTiles(_TilesFn):
    """Decode tiles of a latent."""

    name: ClassVar[str] = "vae.decode_tiles"
    takes = ("vae", "samples")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`."""
        return {"vae": pool.vae(inputs["vae"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return for each box, of samples [B, C, h, w], what the decoder gives: [3, H, W] in about -1..1."""
        vae = components["vae"]
        vae.check_samples(inputs["samples"])
        item = inputs["samples"][inputs["item"]][None]
        return {"tiles": [vae.decode_part(cut(item, box))[0] for box in inputs["boxes"]]}


class VaeEncodeTiles(_TilesFn):
    """Encode tiles of a picture."""

    name: ClassVar[str] = "vae.encode_tiles"
    takes = ("vae", "pixels")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`."""
        return {"vae": pool.vae(inputs["vae"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return for each box, of pixels [B, H, W, 3 or 4] cut to whole cells, its latent [C, h, w]."""
        vae = components["vae"]
        cropped = vae.crop(inputs["pixels"])[inputs["item"], ..., :3]
        item = cropped.movedim(-1, 0)[None]
        return {"tiles": [vae.encode_part(cut(item, box))[0] for box in inputs["boxes"]]}


class ImageUpscaleTiles(_TilesFn):
    """Make tiles of a picture larger."""

    name: ClassVar[str] = "image.upscale_tiles"
    takes = ("upscaler", "images")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the upscaler."""
        return {"upscaler": pool.upscaler(inputs["upscaler"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return for each box, of images [B, H, W, C], [C, H * scale, W * scale] in 0..1; alpha is dropped."""
        upscaler = components["upscaler"]
        picture = inputs["images"][inputs["item"]].movedim(-1, 0)[None, : upscaler.channels]
        return {"tiles": [upscaler.upscale(cut(picture, box))[0] for box in inputs["boxes"]]}
