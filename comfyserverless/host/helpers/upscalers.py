"""Make upscalers of tensors that packs have read themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def load_state_dict(state_dict: Mapping[str, Any]) -> Any:
    """Return the network of an upscaler's tensors.

    Raises NotImplementedError where spandrel is not installed.
    """
    try:
        import spandrel
    except ImportError as exc:
        raise NotImplementedError(
            "comfy_extras.chainner_models.model_loading.load_state_dict needs spandrel: pip install spandrel"
        ) from exc
    return spandrel.ModelLoader().load_from_state_dict(dict(state_dict)).eval()
