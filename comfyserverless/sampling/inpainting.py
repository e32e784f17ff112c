"""Make what networks take beside the latent.

For inpainting a mask, and the latent of what is kept of a picture; for editing the latent of a picture that is
changed as the text says (Brooks et al. 2022, InstructPix2Pix).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.sampling.masking import KeptPart
from comfyserverless.sampling.stacking import fit_batch

_BLACK = (0.8223, -0.6876, 0.6364, 0.1380)
"""A black picture as the autoencoder of Stable Diffusion 1 encodes it, in the model's units."""


def inpainting_input(
    x: Tensor, options: Mapping[str, Any], kept: KeptPart | None, to_model_units: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return [B, 1 + C, h, w] for a latent x [B, C, h, w].

    options: of a conditioning; `concat_mask` [N, 1, H, W] or [N, H, W] and `concat_latent_image` [N, C, h, w],
    in output units, say what is painted and what is seen. Without the first the noise mask of the latent does,
    without the second the latent that sampling starts from; without any mask all of the picture is painted,
    and a black one is seen. kept: of a latent with a noise mask.
    """
    mask = options.get("concat_mask")
    if mask is None and kept is not None:
        mask = kept.mask[:, :1]
    if mask is None:
        return torch.cat((torch.ones_like(x[:, :1]), _black_like(x)), 1)
    return torch.cat((_fit_mask(mask, x), _seen(x, options, kept, to_model_units)), 1)


def editing_input(
    x: Tensor, options: Mapping[str, Any], to_model_units: Callable[[Tensor], Tensor] | None
) -> Tensor:
    """Return [B, C, h, w] for a latent x [B, C, h, w]: `concat_latent_image` of a conditioning, 0 without one.

    to_model_units: for networks that see it in their own units; None for those that see it in output units.
    """
    given = options.get("concat_latent_image")
    if given is None:
        return torch.zeros_like(x)
    seen = given.to(x)
    if seen.shape[1:] != x.shape[1:]:
        seen = _resized(seen, x)
    seen = _spread(seen, x.shape[0])
    return seen if to_model_units is None else to_model_units(seen)


def _seen(
    x: Tensor, options: Mapping[str, Any], kept: KeptPart | None, to_model_units: Callable[[Tensor], Tensor]
) -> Tensor:
    given = options.get("concat_latent_image")
    if given is None:
        return _black_like(x) if kept is None else kept.latent.to(x)
    seen = to_model_units(given).to(x)
    if seen.shape[1:] != x.shape[1:]:
        seen = _spread(_resized(seen, x), x.shape[0])
    return fit_batch(seen, x.shape[0])


def _fit_mask(mask: Tensor, x: Tensor) -> Tensor:
    cells = mask.reshape(-1, 1, *mask.shape[-2:]).to(x)
    if cells.shape[-2:] != x.shape[-2:]:
        cells = _resized(cells, x)
    return _spread(cells.round(), x.shape[0])


def _resized(cells: Tensor, x: Tensor) -> Tensor:
    """Cut a batch around its centre to the ratio of a latent, and resize it bilinearly to its size."""
    height, width = cells.shape[-2:]
    ratio, wanted = width / height, x.shape[-1] / x.shape[-2]
    left = round((width - width * (wanted / ratio)) / 2) if ratio > wanted else 0
    top = round((height - height * (ratio / wanted)) / 2) if ratio < wanted else 0
    middle = cells[..., top : height - top, left : width - left]
    return functional.interpolate(middle, size=x.shape[-2:], mode="bilinear")


def _spread(batch: Tensor, count: int) -> Tensor:
    """Return `count` items of a batch: each as often as others, or of more some, evenly from end to end."""
    given = batch.shape[0]
    if given == count:
        return batch
    if count < given:
        step = (given - 1) / (count - 1) if count > 1 else 0.0
        return batch[[min(round(at * step), given - 1) for at in range(count)]]
    return batch[[min(int((at + 0.5) * given / count), given - 1) for at in range(count)]]


def _black_like(x: Tensor) -> Tensor:
    levels = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    levels[: len(_BLACK)] = torch.tensor(_BLACK[: x.shape[1]]).to(x)
    return levels[None, :, None, None].expand(x.shape)
