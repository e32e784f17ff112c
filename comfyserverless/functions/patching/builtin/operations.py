"""Change latents by named operations, as values of a graph or inside guidance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.images.filters import gaussian
from comfyserverless.functions.patching.options import OptionsBuilder

_DEVIATIONS = 5
_SHARPENING = 10.0


def tonemap_reinhard(latent: Tensor, multiplier: float) -> Tensor:
    """Compress the lengths of channel vectors (Reinhard et al. 2002, equation 3).

    The white point is `multiplier` times the mean length plus five standard deviations of an item.
    """
    length = torch.linalg.vector_norm(latent, dim=1)[:, None] + 1e-10
    direction = latent / length
    mean = torch.mean(length, dim=(1, 2, 3), keepdim=True)
    top = (torch.std(length, dim=(1, 2, 3), keepdim=True) * _DEVIATIONS + mean) * multiplier
    scaled = length * (1.0 / top)
    result: Tensor = direction * ((scaled / (scaled + 1.0)) * top)
    return result


def sharpen(latent: Tensor, sharpen_radius: int, sigma: float, alpha: float) -> Tensor:
    """Sharpen the directions of channel vectors by `alpha` times ten of their difference to a Gaussian blur.

    Raises PromptError for a radius that reaches over the whole latent.
    """
    radius = sharpen_radius
    if radius >= min(latent.shape[-2:]):
        raise PromptError(f"radius {radius} reaches over a latent of {latent.shape[-1]} x {latent.shape[-2]}")
    length = (torch.linalg.vector_norm(latent, dim=1) + 1e-6)[:, None]
    kernel = gaussian(radius, sigma).to(latent) * (alpha * -_SHARPENING)
    kernel[radius, radius] = kernel[radius, radius] - kernel.sum() + 1.0
    channels = latent.shape[1]
    padded = functional.pad(latent / length, (radius,) * 4, "reflect")
    kernels = kernel.repeat(channels, 1, 1).unsqueeze(1)
    result: Tensor = length * functional.conv2d(padded, kernels, groups=channels)
    return result


OPERATIONS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {"tonemap_reinhard": tonemap_reinhard, "sharpen": sharpen}
)
"""Operations by name: each takes a latent [B, C, h, w] and its settings by name."""


class LatentOperate(HostFn):
    """Change a latent by a named operation."""

    name = "latent.operate"
    takes = "samples operation settings"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the changed latent."""
        return {"samples": OPERATIONS[inputs["operation"]](inputs["samples"], **inputs["settings"])}


def apply_operation(builder: OptionsBuilder, operation: str, **settings: float) -> None:
    """Apply an operation to what guidance adds to the negative's estimate, or to the positive's alone."""
    change = OPERATIONS[operation]

    def before(args: Mapping[str, Any]) -> list[Tensor]:
        outputs = list(args["conds_out"])
        if len(outputs) == 2:
            outputs[0] = change(outputs[0] - outputs[1], **settings) + outputs[1]
        else:
            outputs[0] = change(outputs[0], **settings)
        return outputs

    builder.append("sampler_pre_cfg_function", before)
