"""Join the parts of the node host that other rooms bring: what happens at its start, and what it can answer.

A part is a module with a function `attach(parts: Parts) -> None`; `PART_MODULES` names them. They are imported
in the node host before any pack is, and attached in order. In `attach` a part may append to the lists of
`Parts`. A part that only registers conversions (`values.register`) does so there, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from comfyserverless.core.hosting import Catalog, HostPlan
from comfyserverless.host.settings import install_settings

PART_MODULES: tuple[str, ...] = (
    "comfyserverless.host.api.part",
    "comfyserverless.host.models.part",
    "comfyserverless.host.web.part",
    "comfyserverless.host.folders.part",
)
"""Where the parts are, dotted, in the order in which they are attached."""


@dataclass(slots=True)
class Parts:
    """What the node host calls; `plan` is what it was started with.

    loaded: after all packs are imported; each may change the catalog, which is sent then (routes, http,
    web_folders, has_prompt_handlers). answers: kind of a question -> gives the answer to its payload, in a
    thread of questions. ending: before the process ends in order.
    """

    plan: HostPlan
    loaded: list[Callable[[Catalog], Catalog]] = field(default_factory=list)
    answers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    ending: list[Callable[[], None]] = field(default_factory=list)


def attach_all(plan: HostPlan) -> Parts:
    """Import and attach all parts; called once, at the start of the node host."""
    install_settings(plan.settings)
    parts = Parts(plan)
    for name in PART_MODULES:
        import_module(name).attach(parts)
    return parts
