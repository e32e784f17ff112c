"""Write diffusion models, autoencoders and whole checkpoints to safetensors files, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from comfyserverless.core.values import ModelRef, VaeRef
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.saving.marks import file_marks, file_texts
from comfyserverless.models.exporting.autoencoders import autoencoder_entries
from comfyserverless.models.exporting.encoders import checkpoint_clips
from comfyserverless.models.exporting.entries import Entry, constant
from comfyserverless.models.exporting.writing import write_file
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.tiny.autoencoder import find_parts

_NETWORK_PREFIX = "model.diffusion_model."
_AUTOENCODER_PREFIX = "first_stage_model."


class ModelSave(HostFn):
    """Write a diffusion network with its LoRAs and merges."""

    name = "model.save"
    takes = "model directory stem metadata title"
    gives = "files"

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take what makes the tensors; nothing comes to the device."""
        return {"entries": _network(inputs["model"], pool), "texts": _texts(inputs, pool)}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list. Raises PromptError if the disk refuses it."""
        return {"files": [save(components["entries"], inputs, components["texts"])]}


class CheckpointSave(HostFn):
    """Write a diffusion network, text encoders and an autoencoder as one file, in their family's layout."""

    name = "checkpoint.save"
    takes = "model clip vae directory stem metadata title"
    gives = "files"

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take what makes the tensors. Raises PromptError for text encoders of another family."""
        family = pool.facts(inputs["model"]).family
        clips = checkpoint_clips(family, pool.clip_entries(inputs["clip"]))
        return {"entries": _network(inputs["model"], pool) | clips, "texts": _texts(inputs, pool)}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list. Raises PromptError if the disk refuses it."""
        with _autoencoder(inputs["vae"]) as entries:
            vae = {_AUTOENCODER_PREFIX + name: entry for name, entry in entries.items()}
            return {"files": [save(components["entries"] | vae, inputs, components["texts"])]}


class VaeSave(HostFn):
    """Write an autoencoder."""

    name = "vae.save"
    takes = "vae directory stem metadata"
    gives = "files"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list. Raises PromptError if the disk refuses it."""
        with _autoencoder(inputs["vae"]) as entries:
            return {"files": [save(entries, inputs)]}


def save(
    entries: Mapping[str, Entry], inputs: Mapping[str, Any], texts: Mapping[str, str] | None = None
) -> str:
    """Write entries to the place that the inputs of a saving function name; return the path.

    texts: metadata besides that of the inputs, which win.
    """
    path = Path(inputs["directory"]) / f"{inputs['stem']}_0.part"
    write_file(path, entries, {**(texts or {}), **inputs["metadata"]})
    return str(path)


@contextmanager
def _autoencoder(vae: VaeRef) -> Iterator[Mapping[str, Entry]]:
    """Give the entries of an autoencoder, whose files stay open within the block."""
    with ExitStack() as stack:
        root = stack.enter_context(opened(vae.file))
        tiny = find_parts(vae, root, stack)
        if tiny is None:
            yield autoencoder_entries(root)
        else:
            yield {name: constant(tensor) for name, tensor in tiny.tensors().items()}


def _network(model: ModelRef, pool: Any) -> dict[str, Entry]:
    entries = {_NETWORK_PREFIX + name: entry for name, entry in pool.network_entries(model).items()}
    return entries | file_marks(model, pool.facts(model))


def _texts(inputs: Mapping[str, Any], pool: Any) -> dict[str, str]:
    return file_texts(inputs["model"], pool.facts(inputs["model"]), inputs["title"])
