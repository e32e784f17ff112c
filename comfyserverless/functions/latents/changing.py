"""Blend, combine, turn and cut latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.images.fitting import paste
from comfyserverless.functions.resampling import resample
from comfyserverless.sampling.stacking import fit_batch

_AXES: Mapping[str, int] = {"x": -1, "y": -2}


class LatentBlend(HostFn):
    """Mix two latents."""

    name = "latent.blend"
    takes = "first second factor"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return first * factor + second * (1 - factor), the second in the size and number of the first."""
        first, factor = inputs["first"], inputs["factor"]
        second = _fit(inputs["second"], first, "bicubic")
        return {"samples": first * factor + second * (1 - factor)}


class LatentInterpolate(HostFn):
    """Mix directions and lengths of two latents apart."""

    name = "latent.interpolate"
    takes = "first second ratio"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return, per cell, the mean direction and the mean length of both channel vectors, by `ratio`."""
        first, ratio = inputs["first"], inputs["ratio"]
        second = _fit(inputs["second"], first, "bilinear")
        direction = _unit(first) * ratio + _unit(second) * (1.0 - ratio)
        return {"samples": _unit(direction) * (_length(first) * ratio + _length(second) * (1.0 - ratio))}


class LatentSum(HostFn):
    """Add or subtract latents."""

    name = "latent.sum"
    takes = "first second sign"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return first + sign * second, the second in the size and number of the first."""
        first = inputs["first"]
        second = _fit(inputs["second"], first, "bilinear")
        return {"samples": first + second if inputs["sign"] > 0 else first - second}


class LatentScale(HostFn):
    """Multiply a latent."""

    name = "latent.multiply"
    takes = "samples multiplier"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples * multiplier."""
        return {"samples": inputs["samples"] * inputs["multiplier"]}


class LatentPaste(HostFn):
    """Put one latent on another, where a mask shows it."""

    name = "latent.paste"
    takes = "destination source mask x y resize_source"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the destination with the source put on it from cell (x, y) on, as far as it reaches.

        resize_source: give it the destination's size first. mask: 1 where the source is seen; None: everywhere.
        """
        destination, source = inputs["destination"], inputs["source"]
        _check_channels(destination, source)
        if inputs["resize_source"]:
            source = resample(source, destination.shape[-1], destination.shape[-2], "bilinear", "disabled")
        return {"samples": paste(destination, source, inputs["mask"], inputs["x"], inputs["y"])}


class LatentFlip(HostFn):
    """Mirror a latent."""

    name = "latent.flip"
    takes = "samples axis"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples upside down for axis `x`, left side right for `y`."""
        return {"samples": inputs["samples"].flip(-2 if inputs["axis"] == "x" else -1)}


class LatentRotate(HostFn):
    """Turn a latent by right angles."""

    name = "latent.rotate"
    takes = "samples turns"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples turned clockwise by so many right angles."""
        return {"samples": torch.rot90(inputs["samples"], inputs["turns"], dims=(-1, -2))}


class LatentCrop(HostFn):
    """Cut a part out of a latent."""

    name = "latent.crop"
    takes = "samples x y width height"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the part of at most width x height cells from (x, y) on."""
        x, y = inputs["x"], inputs["y"]
        return {"samples": inputs["samples"][..., y : y + inputs["height"], x : x + inputs["width"]]}


class LatentBatch(HostFn):
    """Put two batches of latents into one."""

    name = "latent.batch"
    takes = "first second"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return both, the second in the size of the first."""
        first, second = inputs["first"], inputs["second"]
        _check_channels(first, second)
        if second.shape[-2:] != first.shape[-2:]:
            second = resample(second, first.shape[-1], first.shape[-2], "bilinear", "center")
        return {"samples": torch.cat([first, second])}


class LatentConcat(HostFn):
    """Put one latent beside another."""

    name = "latent.concat"
    takes = "first second axis"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return both along axis `x` or `y`, the second one first if it starts with a minus sign.

        Raises PromptError if their other sides differ.
        """
        first, name = inputs["first"], inputs["axis"]
        second = fit_batch(inputs["second"], first.shape[0])
        _check_channels(first, second)
        axis = _axis(name.removeprefix("-"))
        across = -3 - axis
        if first.shape[across] != second.shape[across]:
            raise PromptError(
                f"latents of {_size(first)} and {_size(second)} cells cannot be put side by side along"
                f" {name.removeprefix('-')}"
            )
        parts = [second, first] if name.startswith("-") else [first, second]
        return {"samples": torch.cat(parts, dim=axis)}


class LatentCut(HostFn):
    """Cut a stripe out of a latent."""

    name = "latent.cut"
    takes = "samples axis index amount"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return `amount` cells along an axis from `index` on, which counts from the end if negative."""
        samples, axis, index = inputs["samples"], _axis(inputs["axis"]), inputs["index"]
        length = samples.shape[axis]
        start = min(index, length - 1) if index >= 0 else max(index, -length) + length
        return {"samples": samples.narrow(axis, start, min(length - start, inputs["amount"]))}


class LatentCutToBatch(HostFn):
    """Cut latents into stripes."""

    name = "latent.cut_to_batch"
    takes = "samples axis size"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return stripes of `size` cells along an axis as a batch; what does not fill one is left out."""
        samples, axis = inputs["samples"], _axis(inputs["axis"])
        size = min(inputs["size"], samples.shape[axis])
        count = samples.shape[axis] // size
        stripes = samples.narrow(axis, 0, count * size).chunk(count, dim=axis)
        return {"samples": torch.stack(stripes, dim=1).flatten(0, 1)}


def _fit(samples: Tensor, like: Tensor, method: str) -> Tensor:
    """Give a latent the size and number of items of another one."""
    _check_channels(like, samples)
    if samples.shape[-2:] != like.shape[-2:]:
        samples = resample(samples, like.shape[-1], like.shape[-2], method, "center")
    return fit_batch(samples, like.shape[0])


def _check_channels(first: Tensor, second: Tensor) -> None:
    if first.shape[1] != second.shape[1]:
        raise PromptError(
            f"latents with {first.shape[1]} and {second.shape[1]} channels are of different families and cannot"
            " be combined"
        )


def _axis(name: str) -> int:
    if name not in _AXES:
        raise PromptError(f"axis {name!r} is for videos; latents of images have {' and '.join(_AXES)}")
    return _AXES[name]


def _length(x: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return lengths


def _unit(x: Tensor) -> Tensor:
    return torch.nan_to_num(x / _length(x))


def _size(x: Tensor) -> str:
    return f"{x.shape[-1]}x{x.shape[-2]}"
