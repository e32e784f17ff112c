"""Show latents while a pack samples: the classes of `latent_preview`."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from comfyserverless.host.bridge import bridge
from comfyserverless.host.flags.arguments import LatentPreviewMethod, arguments
from comfyserverless.host.helpers.progress import Preview, ProgressBar

_OWNER = "latent_preview"
MAX_PREVIEW_RESOLUTION: int = arguments().preview_size


def preview_to_image(latent_image: Tensor) -> Image.Image:
    """Turn pixels [h, w, 3] in -1..1 into a picture."""
    pixels = ((latent_image + 1.0) / 2.0).clamp(0, 1).mul(255.0).round()
    return Image.fromarray(pixels.to("cpu", torch.uint8).numpy())


class LatentPreviewer:
    """Make a picture of a latent; packs derive their own."""

    def decode_latent_to_preview(self, x0: Tensor) -> Image.Image:
        """Return a picture of the first item of x0: [B, C, h, w]."""
        raise NotImplementedError(f"{type(self).__name__} has no decode_latent_to_preview")

    def decode_latent_to_preview_image(self, preview_format: str, x0: Tensor) -> Preview:
        """Return a picture as bars of progress take it."""
        return preview_format, self.decode_latent_to_preview(x0), MAX_PREVIEW_RESOLUTION


class Latent2RGBPreviewer(LatentPreviewer):
    """Map channels to colours linearly. latent_rgb_factors: [C, 3], bias: [3]."""

    def __init__(
        self,
        latent_rgb_factors: Sequence[Sequence[float]],
        latent_rgb_factors_bias: Sequence[float] | None = None,
        latent_rgb_factors_reshape: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.latent_rgb_factors = torch.tensor(latent_rgb_factors).transpose(0, 1)
        bias = latent_rgb_factors_bias
        self.latent_rgb_factors_bias = None if bias is None else torch.tensor(bias)
        self.latent_rgb_factors_reshape = latent_rgb_factors_reshape

    def decode_latent_to_preview(self, x0: Tensor) -> Image.Image:
        """Return a picture of the first item (and frame) of x0."""
        if self.latent_rgb_factors_reshape is not None:
            x0 = self.latent_rgb_factors_reshape(x0)
        latent = x0[0] if x0.ndim == 4 else x0[0, :, 0]
        factors = self.latent_rgb_factors.to(latent)
        bias = self.latent_rgb_factors_bias
        pixels = torch.nn.functional.linear(
            latent.movedim(0, -1), factors, None if bias is None else bias.to(latent)
        )
        return preview_to_image(pixels)


class TAESDPreviewerImpl(LatentPreviewer):
    """Decode with a small autoencoder of a pack: `taesd.decode` takes and gives [B, C, h, w]."""

    def __init__(self, taesd: Any) -> None:
        self.taesd = taesd

    def decode_latent_to_preview(self, x0: Tensor) -> Image.Image:
        """Return a picture of the first item of x0."""
        return preview_to_image(self.taesd.decode(x0[:1])[0].movedim(0, 2))


_override: dict[str, LatentPreviewMethod | None] = {"method": None}


def set_preview_method(override: str | None = None) -> None:
    """Choose the method for previews of packs; None or `default`: that of the prompt."""
    _override["method"] = None if override is None else LatentPreviewMethod.from_string(override)


def _method() -> LatentPreviewMethod:
    of_call = LatentPreviewMethod.from_string(bridge().call.preview_method)
    return _override["method"] or of_call or LatentPreviewMethod.NoPreviews


def get_previewer(device: Any, latent_format: Any) -> LatentPreviewer | None:
    """Return what shows latents of a format; None if the prompt wants no previews, or nothing can."""
    factors = getattr(latent_format, "latent_rgb_factors", None)
    if _method() is LatentPreviewMethod.NoPreviews or factors is None:
        return None
    return Latent2RGBPreviewer(
        factors,
        getattr(latent_format, "latent_rgb_factors_bias", None),
        getattr(latent_format, "latent_rgb_factors_reshape", None),
    )


def prepare_callback(
    model: Any, steps: int, x0_output_dict: MutableMapping[str, Any] | None = None
) -> Callable[[int, Tensor, Tensor, int], None]:
    """Return a callback (step, x0, x, total) for samplers: it shows progress and previews.

    x0_output_dict: gets the latest `x0`. A callback that shows progress only says so (`is_report`): where the
    workers take all steps, they show it themselves.
    """
    owner = sys.modules.get(_OWNER)
    choose = get_previewer if owner is None else owner.get_previewer  # packs put theirs in its place
    previewer = choose(model.load_device, getattr(model.model, "latent_format", None))
    bar = ProgressBar(steps)

    def callback(step: int, x0: Tensor, x: Tensor, total_steps: int) -> None:
        if x0_output_dict is not None:
            x0_output_dict["x0"] = x0
        preview = None if previewer is None else previewer.decode_latent_to_preview_image("JPEG", x0)
        bar.update_absolute(step + 1, total_steps, preview)

    shown: Any = callback
    shown.is_report, shown.x0_output = previewer is None, x0_output_dict
    return callback
