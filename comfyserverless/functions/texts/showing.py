"""Write any value as text, tensors as torch shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.functions.host import HostFn


class TextShow(HostFn):
    """Write a value as Python does."""

    name = "text.show"
    takes = "value limit"
    gives = "text"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the value as `str` writes it, cut off after `limit` characters; large tensors are abridged."""
        return {"text": str(inputs["value"])[: inputs["limit"]]}
