"""Share what the calls of one prompt see: its graph, and the metadata of its files, which nodes may change.

They are large: a call says which of them it needs, and the first one that needs something asks for it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from comfyserverless.host.dynprompt import DynamicPrompt

_KEPT = 32

Fetch = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Ask for parts of the prompt of a call; see `core.hosting`."""


class SharedPrompt:
    """What all calls of one run see. graph, extra_pnginfo: mutable; nodes may change them for those after."""

    def __init__(self) -> None:
        self.graph: dict[str, Any] = {}
        self.extra_pnginfo: Any = None
        self.dynamic = DynamicPrompt(self.graph)
        self._has_graph = self._has_workflow = False
        self._added = 0
        self._told = b""
        self._lock = threading.Lock()

    def provide(self, parts: Mapping[str, Any], fetch: Fetch) -> None:
        """Get those parts that a call needs and nobody has needed before."""
        with self._lock:
            wanted: dict[str, Any] = {}
            if parts.get("graph") and not self._has_graph:
                wanted["graph"] = True
            if parts.get("workflow") and not self._has_workflow:
                wanted["workflow"] = True
            if (parts.get("nodes") or 0) > self._added:
                wanted["nodes"] = self._added
            if wanted:
                self._take(fetch(wanted))

    def change(self) -> Any:
        """Return the metadata if a node has changed it since the last time, else None."""
        with self._lock:
            if self.extra_pnginfo is None:
                return None
            now = _picture(self.extra_pnginfo)
            if now == self._told:
                return None
            self._told = now
            return self.extra_pnginfo

    def _take(self, given: Mapping[str, Any]) -> None:
        if "graph" in given:
            self.graph.update(json.loads(given["graph"]))
            self._has_graph = True
        if "workflow" in given:
            self.extra_pnginfo = json.loads(given["workflow"])
            self._told = _picture(self.extra_pnginfo)
            self._has_workflow = True
        added = given.get("nodes") or ()
        for node_id, node, parent, display, real in added:
            self.dynamic.add(node_id, node, parent, display, real)
        self._added += len(added)


class PromptShare:
    """Keep the mutable objects of the latest prompts, so that all their nodes get the same ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: tenant, run -> what its calls see, the latest last.
        self._prompts: OrderedDict[tuple[str, str], SharedPrompt] = OrderedDict()

    def of(self, about: Mapping[str, Any], fetch: Fetch) -> SharedPrompt:
        """Return what a call sees of its prompt; an empty one if it needs nothing of it."""
        parts = about.get("parts") or {}
        if not parts:
            return SharedPrompt()
        key = (str(about.get("tenant", "default")), str(about.get("run", "")))
        with self._lock:
            shared = self._prompts.setdefault(key, SharedPrompt())
            self._prompts.move_to_end(key)
            while len(self._prompts) > _KEPT:
                self._prompts.popitem(last=False)
        shared.provide(parts, fetch)
        return shared


def hidden_values(about: Mapping[str, Any], node_id: str, shared: SharedPrompt) -> dict[str, Any]:
    """Return what hidden inputs give, by TAG."""
    given = about.get("extra_data") or {}
    return {
        "PROMPT": shared.graph,
        "EXTRA_PNGINFO": shared.extra_pnginfo,
        "UNIQUE_ID": node_id,
        "DYNPROMPT": shared.dynamic,
        "AUTH_TOKEN_COMFY_ORG": given.get("auth_token_comfy_org"),
        "API_KEY_COMFY_ORG": given.get("api_key_comfy_org"),
        "COMFY_USAGE_SOURCE": given.get("comfy_usage_source"),
    }


def token_values(about: Mapping[str, Any], node_id: str) -> dict[str, Any]:
    """Return what hidden inputs give to IS_CHANGED: the graph came along if a class asks for it."""
    shared = SharedPrompt()
    shared.graph.update(about.get("prompt") or {})
    return hidden_values(about, node_id, shared)


def _picture(value: Any) -> bytes:
    """Return bytes that change when a value does; fast, as it is made after each call that may."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, OverflowError):
        return json.dumps(value, default=str, skipkeys=True).encode()
