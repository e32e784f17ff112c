"""Encode tokens that somebody else has cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.models.text.chunks import Token
from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class TextEncodeTokens(ModelFn):
    """Turn chunks of tokens into hidden states and a pooled vector."""

    name: ClassVar[str] = "text.encode_tokens"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("clip")
        io.add_input("tokens")
        io.add_output("cond")
        io.add_output("pooled")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the text encoders of `clip`."""
        return {"encoder": pool.text(inputs["clip"])}

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return cond [1, T, D] float32 and pooled [1, D] float32 or None.

        tokens: by kind of text model (`l`, `g`, `h`), chunks of [id or vector [D], weight]; a kind that the
        encoder lacks is left out, and one that is not there gets empty chunks.
        """
        chunks = {
            kind: [[_token(value, weight) for value, weight in chunk] for chunk in given]
            for kind, given in inputs["tokens"].items()
        }
        cond, pooled = components["encoder"].encode_chunks(chunks)
        return {"cond": cond, "pooled": pooled}


def _token(value: int | Tensor, weight: float) -> Token:
    if isinstance(value, Tensor):
        return Token(0, float(weight), 0, value)
    return Token(int(value), float(weight))
