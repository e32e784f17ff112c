"""Write text encoders to safetensors files, one for each text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.functions.host import HostFn
from comfyserverless.functions.saving.models import save
from comfyserverless.models.exporting.encoders import own_file


class ClipKinds(HostFn):
    """Tell which text models an encoder has, from the headers of its files."""

    name = "clip.kinds"
    takes = "clip"
    gives = "kinds"

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the text models; nothing comes to the device."""
        return {"clips": pool.clip_entries(inputs["clip"])}

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the kinds (`l`, `h`, `g`) in the order of their features."""
        return {"kinds": [clip.kind for clip in components["clips"]]}


class ClipSave(HostFn):
    """Write one text model with its LoRAs and merges, in Hugging Face's layout."""

    name = "clip.save"
    takes = "clip kind directory stem metadata"
    gives = "files"

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take what makes the tensors; nothing comes to the device."""
        clips = {clip.kind: clip for clip in pool.clip_entries(inputs["clip"])}
        return {"entries": own_file(clips[inputs["kind"]])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list. Raises PromptError if the disk refuses it."""
        return {"files": [save(components["entries"], inputs)]}
