"""Make, scale, save and load latents on the CPU lane.

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

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import FileRef
from comfyserverless.functions.resampling import resample
from comfyserverless.models.reading.header import read_header
from comfyserverless.models.reading.weights import Weights
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
