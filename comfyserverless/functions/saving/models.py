"""Write diffusion models and autoencoders to safetensors files, with the texts that an image would carry."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from comfyserverless.core.values import ModelRef
from comfyserverless.models.exporting.tensors import autoencoder_tensors
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.tiny.autoencoder import find_parts
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

_NETWORK_PREFIX = "model.diffusion_model."
_V_PREDICTION = "v_pred"
"""An empty tensor by this name says of a file what its network predicts."""


class ModelSave(ModelFn):
    """Write a diffusion network with its LoRAs and merges."""

    name = "model.save"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "directory", "stem", "metadata"):
            io.add_input(port)
        io.add_output("files")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take what makes the tensors; nothing comes to the device."""
        return {"pool": pool}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list."""
        model: ModelRef = inputs["model"]
        pool = components["pool"]
        tensors = {f"{_NETWORK_PREFIX}{name}": tensor for name, tensor in pool.network_tensors(model).items()}
        if pool.facts(model).prediction == "v_prediction":
            tensors[_V_PREDICTION] = torch.zeros(0)
        return {"files": [_write(tensors, inputs)]}


class VaeSave(ModelFn):
    """Write an autoencoder."""

    name = "vae.save"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("vae", "directory", "stem", "metadata"):
            io.add_input(port)
        io.add_output("files")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list."""
        with ExitStack() as stack:
            root = stack.enter_context(opened(inputs["vae"].file))
            tiny = find_parts(inputs["vae"], root, stack)
            tensors = autoencoder_tensors(root) if tiny is None else tiny.tensors()
        return {"files": [_write(tensors, inputs)]}


def _write(tensors: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> str:
    directory = Path(inputs["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{inputs['stem']}_0.part"
    save_file(dict(tensors), path, metadata=dict(inputs["metadata"]) or None)
    return str(path)
