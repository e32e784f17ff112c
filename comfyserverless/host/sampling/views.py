"""Show a model with its patches, as packs find it in a guider while it samples."""

from __future__ import annotations

import copy
from typing import Any

from comfyserverless.host.models.network import BaseModel
from comfyserverless.host.models.patcher import ModelPatcher


def model_view(patcher: ModelPatcher) -> Any:
    """Return the model with the objects that patches put into it; the shared one stays as it is.

    current_patcher: whose options and weights evaluations use.
    """
    if not isinstance(patcher.model, BaseModel):
        return patcher.model
    view = copy.copy(patcher.model)
    view.current_patcher = patcher
    view.model_sampling = patcher.get_model_object("model_sampling")
    for name, item in patcher.object_patches.items():
        if "." not in name:
            setattr(view, name, item)
    return view
