"""Write what one model has more than another as a LoRA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.functions.saving.models import save
from comfyserverless.models.exporting.encoders import own_file
from comfyserverless.models.exporting.entries import Entry
from comfyserverless.models.exporting.extraction import Extraction, adapter_entries
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

_NETWORK_PREFIX = "diffusion_model."
_CLIP_PREFIX = "text_encoders.clip_{}.transformer."


class LoraSave(ModelFn):
    """Write the weights of a model and of text encoders, which are differences, as a LoRA."""

    name = "lora.save"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("model", "clip", "rank", "lora_type", "has_biases", "directory", "stem", "metadata"):
            io.add_input(port)
        io.add_output("files")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take what makes the differences, in float32: they are small beside the weights that they are of."""
        model, clip = inputs["model"], inputs["clip"]
        found: dict[str, Entry] = {}
        if model is not None:
            network = pool.network_entries(model, torch.float32)
            found |= {_NETWORK_PREFIX + name: entry for name, entry in network.items()}
        for part in [] if clip is None else pool.clip_entries(clip, torch.float32):
            prefix = _CLIP_PREFIX.format(part.kind)
            found |= {prefix + name: entry for name, entry in own_file(part).items()}
        return {"differences": found, "device": pool.device}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list. Raises PromptError if the disk refuses it."""
        rank = inputs["rank"] if inputs["lora_type"] == "standard" else None
        how = Extraction(rank, inputs["has_biases"], components["device"])
        return {"files": [save(adapter_entries(components["differences"], how), inputs)]}
