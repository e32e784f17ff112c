"""Make, scale, combine, save and load latents on the CPU lane.

Samples are [B, C, h, w] float32 in the units that a LATENT holds. Files are safetensors with the key
`latent_tensor`, and an empty tensor `latent_format_version_0` that marks those units; files without that
mark are older and hold what the U-Net of Stable Diffusion 1 works in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import FileRef
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.limits.room import check_room
from comfyserverless.functions.mask import batch_of_masks
from comfyserverless.functions.resampling import resample
from comfyserverless.models.reading.header import read_header
from comfyserverless.models.reading.weights import Weights
from comfyserverless.sampling.stacking import fit_batch
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

_SAMPLES_KEY = "latent_tensor"
_VERSION_KEY = "latent_format_version_0"
_SD1_SCALE_FACTOR = 0.18215
_CELL_PX = 8
_DIMENSIONS = 4
_EMPTY_CHANNELS = 4


class LatentEmpty(ModelFn):
    """Make a latent of zeros; its channels are those of Stable Diffusion, samplers adapt it to their model."""

    name = "latent.empty"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("width", "height", "batch_size"):
            io.add_input(port)
        io.add_output("samples")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [batch_size, 4, height / 8, width / 8] for a size in pixels."""
        shape = (
            inputs["batch_size"],
            _EMPTY_CHANNELS,
            inputs["height"] // _CELL_PX,
            inputs["width"] // _CELL_PX,
        )
        check_room(shape, "latents")
        return {"samples": torch.zeros(shape)}


class LatentUpscale(ModelFn):
    """Resize a latent."""

    name = "latent.upscale"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("samples", "width", "height", "method", "crop"):
            io.add_input(port)
        io.add_output("samples")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, C, height, width], a size in latent cells; see `resampling.resample`."""
        samples, width, height = inputs["samples"], inputs["width"], inputs["height"]
        return {"samples": resample(samples, width, height, inputs["method"], inputs["crop"])}


class LatentComposite(HostFn):
    """Put one latent on another."""

    name = "latent.composite"
    takes = "samples_to samples_from x y feather"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return samples_to with samples_from put on it from cell (x, y) on, as far as it reaches.

        feather: cells over which the borders that lie inside fade. Raises PromptError if batches or channels do
        not fit.
        """
        samples: Tensor = inputs["samples_to"].clone()
        given, x, y, feather = inputs["samples_from"], inputs["x"], inputs["y"], inputs["feather"]
        if given.shape[0] not in (1, samples.shape[0]) or given.shape[1] != samples.shape[1]:
            raise PromptError(
                f"a latent of shape {list(given.shape)} cannot be put on one of shape {list(samples.shape)}"
            )
        part = samples[:, :, y : y + given.shape[2], x : x + given.shape[3]]
        given = given[:, :, : part.shape[2], : part.shape[3]]
        if feather:
            fades = (
                y > 0,
                y + given.shape[2] < samples.shape[2],
                x > 0,
                x + given.shape[3] < samples.shape[3],
            )
            mask = _feathered(given, feather, fades)
            given = given * mask + part * (1.0 - mask)
        part.copy_(given)
        return {"samples": samples}


class LatentRepeat(HostFn):
    """Repeat a batch."""

    name = "latent.repeat"
    takes = "samples noise_mask amount"
    gives = "samples noise_mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the batch `amount` times, and its noise masks, if there are several; one stays one."""
        samples, amount, mask = inputs["samples"], inputs["amount"], _noise_masks(inputs["noise_mask"])
        check_room((samples.shape[0] * amount, *samples.shape[1:]), "latents")
        if mask is not None and mask.shape[0] > 1:
            mask = fit_batch(mask, mask.shape[0] * amount)
        return {"samples": samples.repeat(amount, 1, 1, 1), "noise_mask": mask}


class LatentSlice(HostFn):
    """Take items out of a batch."""

    name = "latent.slice"
    takes = "samples noise_mask start length"
    gives = "samples noise_mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return `length` items from item `start` on, and their noise masks; one mask for all stays."""
        samples, mask, start = inputs["samples"], _noise_masks(inputs["noise_mask"]), inputs["start"]
        end = start + inputs["length"]
        if mask is not None and mask.shape[0] > 1:
            mask = fit_batch(mask, max(mask.shape[0], samples.shape[0]))[start:end]
        return {"samples": samples[start:end], "noise_mask": mask}


def _noise_masks(mask: Tensor | None) -> Tensor | None:
    """View noise masks as [B, 1, H, W]."""
    return None if mask is None else batch_of_masks(mask)[:, None]


def _feathered(like: Tensor, feather: int, fades: tuple[bool, bool, bool, bool]) -> Tensor:
    """Return factors of like's shape that fall off over `feather` cells to top, bottom, left, right if set.

    The factors are multiplied cell by cell in ComfyUI's order, for the last bit.
    """
    mask = torch.ones_like(like)
    _, _, height, width = like.shape
    for distance in range(min(feather, max(height, width))):
        rate = (1.0 / feather) * (distance + 1)
        lines = (
            (2, distance, height),
            (2, height - 1 - distance, height),
            (3, distance, width),
            (3, width - 1 - distance, width),
        )
        for (axis, index, side), is_fading in zip(lines, fades, strict=True):
            if is_fading and 0 <= index < side:
                mask.select(axis, index).mul_(rate)
    return mask


class LatentSave(ModelFn):
    """Write a latent to a safetensors file, with the texts that an image would carry."""

    name = "latent.save"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("samples", "directory", "stem", "metadata"):
            io.add_input(port)
        io.add_output("files")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part`, the whole batch in one file, and return its path in a list."""
        directory = Path(inputs["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{inputs['stem']}_0.part"
        tensors = {_SAMPLES_KEY: inputs["samples"].contiguous(), _VERSION_KEY: torch.zeros(0)}
        save_file(tensors, path, metadata=dict(inputs["metadata"]) if inputs["metadata"] else None)
        return {"files": [str(path)]}


class LatentLoad(ModelFn):
    """Read a latent from a safetensors file."""

    name = "latent.load"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("file")
        io.add_output("samples")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the samples as float32. Raises PromptError if the file holds no latent."""
        file: FileRef = inputs["file"]
        name = Path(file.path).name
        try:
            weights = Weights(file.path, read_header(file.path).tensors)
            if _SAMPLES_KEY not in weights:
                raise PromptError(f"{name!r} is no latent file: it has no tensor {_SAMPLES_KEY!r}")
            samples = weights.load(_SAMPLES_KEY, torch.float32)
        except ModelFileError as exc:
            raise PromptError(f"cannot read latent {name!r}: {exc}") from exc
        if samples.ndim != _DIMENSIONS or samples.numel() == 0:
            raise PromptError(
                f"{name!r} holds a latent of shape {list(samples.shape)}; supported are pictures' latents"
                " [batch, channels, height, width]"
            )
        return {"samples": samples if _VERSION_KEY in weights else samples * (1.0 / _SD1_SCALE_FACTOR)}
