"""Encode prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class TextEncode(ModelFn):
    """Turn a prompt into hidden states and a pooled vector."""

    name: ClassVar[str] = "text.encode"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("clip")
        io.add_input("text")
        io.add_output("cond")
        io.add_output("pooled")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the text encoders of `clip`."""
        return {"encoder": pool.text(inputs["clip"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return cond [1, T, D] float32 and pooled [1, D] float32 or None.

        text: one for all text models, or a dict of texts by kind of model (`l`, `g`, `h`).
        """
        encoder, text = components["encoder"], inputs["text"]
        cond, pooled = encoder.encode_parts(text) if isinstance(text, dict) else encoder.encode(text)
        return {"cond": cond, "pooled": pooled}
