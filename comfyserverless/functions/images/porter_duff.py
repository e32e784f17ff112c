"""Composite two images with transparency (Porter and Duff 1984; W3C Compositing and Blending Level 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.host import HostFn
from comfyserverless.functions.images.fitting import fit_channels, fit_mask, fit_size

_INVISIBLE = 1e-5

#: colours are premultiplied; alphas have a last dimension of one
_Layer = tuple[Tensor, Tensor]
_Operator = Callable[[Tensor, Tensor, Tensor, Tensor], _Layer]


def _fractions(
    of_source: Callable[[Tensor], Tensor | float], of_destination: Callable[[Tensor], Tensor | float]
) -> _Operator:
    """Build an operator that shows a fraction of each layer, given by the other one's alpha (table 1)."""

    def composite(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> _Layer:
        shown, kept = of_source(destination_a), of_destination(source_a)
        return source * shown + destination * kept, source_a * shown + destination_a * kept

    return composite


def _blended(blend: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> _Operator:
    """Build an operator whose result covers what either covers, with a blend where both do."""

    def composite(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> _Layer:
        colour = blend(source, source_a, destination, destination_a)
        return colour, source_a + destination_a - source_a * destination_a

    return composite


def _beside(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> Tensor:
    return (1 - destination_a) * source + (1 - source_a) * destination


def _add(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> _Layer:
    return (source + destination).clamp(0, 1), (source_a + destination_a).clamp(0, 1)


def _multiply(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> _Layer:
    return source * destination, source_a * destination_a


def _overlay(source: Tensor, source_a: Tensor, destination: Tensor, destination_a: Tensor) -> Tensor:
    bright = source_a * destination_a - 2 * (destination_a - source) * (source_a - destination)
    return torch.where(2 * destination < destination_a, 2 * source * destination, bright)


def _one(alpha: Tensor) -> float:
    return 1.0


def _none(alpha: Tensor) -> float:
    return 0.0


def _inside(alpha: Tensor) -> Tensor:
    return alpha


def _outside(alpha: Tensor) -> Tensor:
    return 1 - alpha


OPERATORS: Mapping[str, _Operator] = MappingProxyType(
    {
        "ADD": _add,
        "CLEAR": _fractions(_none, _none),
        "DARKEN": _blended(lambda s, sa, d, da: _beside(s, sa, d, da) + torch.minimum(s, d)),
        "DST": _fractions(_none, _one),
        "DST_ATOP": _fractions(_outside, _inside),
        "DST_IN": _fractions(_none, _inside),
        "DST_OUT": _fractions(_none, _outside),
        "DST_OVER": _fractions(_outside, _one),
        "LIGHTEN": _blended(lambda s, sa, d, da: _beside(s, sa, d, da) + torch.maximum(s, d)),
        "MULTIPLY": _multiply,
        "OVERLAY": _blended(_overlay),
        "SCREEN": _blended(lambda s, sa, d, da: s + d - s * d),
        "SRC": _fractions(_one, _none),
        "SRC_ATOP": _fractions(_inside, _outside),
        "SRC_IN": _fractions(_inside, _none),
        "SRC_OUT": _fractions(_outside, _none),
        "SRC_OVER": _fractions(_one, _outside),
        "XOR": _fractions(_outside, _outside),
    }
)
"""The operators by ComfyUI's names; MULTIPLY and OVERLAY are those of graphics libraries, not of the W3C."""


class ImagePorterDuff(HostFn):
    """Composite two images with transparency."""

    name = "image.porter_duff"
    takes = "source source_alpha destination destination_alpha mode"
    gives = "images mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, C] in the destination's size, and a mask [B, H, W] that is 1 - alpha.

        Masks are 1 where nothing is seen. As many items are made as the shortest of the four batches has.
        """
        destination = inputs["destination"]
        height, width = destination.shape[1:3]
        source = fit_size(fit_channels(inputs["source"], destination.shape[-1]), destination, "bicubic")
        masks = [
            fit_mask(inputs[name], height, width, "bicubic", "center")
            for name in ("source_alpha", "destination_alpha")
        ]
        count = min(batch.shape[0] for batch in (source, destination, *masks))
        source_a, destination_a = (1.0 - mask[:count, ..., None] for mask in masks)
        colour, alpha = OPERATORS[inputs["mode"]](
            source[:count] * source_a, source_a, destination[:count] * destination_a, destination_a
        )
        visible = torch.where(alpha > _INVISIBLE, colour / alpha, torch.zeros_like(colour))
        return {"images": visible.clamp(0, 1), "mask": 1.0 - alpha[..., 0]}
