"""Gather what packs find in `comfy_api.latest.io`."""

from __future__ import annotations

from comfyserverless.host.api.io import dynamic, sockets, widgets
from comfyserverless.host.api.io.base import (
    ComfyType,
    ComfyTypeI,
    ComfyTypeIO,
    Input,
    Output,
    WidgetInput,
    comfytype,
)
from comfyserverless.host.api.io.node import ComfyNode, NodeOutput
from comfyserverless.host.api.io.schema import (
    Hidden,
    HiddenHolder,
    NodeReplace,
    PriceBadge,
    PriceBadgeDepends,
    Schema,
)
from comfyserverless.host.blocking import ExecutionBlocker

NAMES: dict[str, object] = {
    **{
        name: value
        for module in (widgets, sockets, dynamic)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    },
    **{
        name: globals()[name]
        for name in (
            "ComfyNode",
            "ComfyType",
            "ComfyTypeI",
            "ComfyTypeIO",
            "ExecutionBlocker",
            "Hidden",
            "HiddenHolder",
            "Input",
            "NodeOutput",
            "NodeReplace",
            "Output",
            "PriceBadge",
            "PriceBadgeDepends",
            "Schema",
            "WidgetInput",
            "comfytype",
        )
    },
}
"""Name -> what it is."""

__all__ = [
    "NAMES",
    "ComfyNode",
    "ComfyType",
    "ComfyTypeI",
    "ComfyTypeIO",
    "ExecutionBlocker",
    "Hidden",
    "HiddenHolder",
    "Input",
    "NodeOutput",
    "NodeReplace",
    "Output",
    "PriceBadge",
    "PriceBadgeDepends",
    "Schema",
    "WidgetInput",
    "comfytype",
]
