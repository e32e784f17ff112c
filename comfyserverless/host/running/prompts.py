"""Share what the calls of one prompt see: its graph, and the metadata of its files, which nodes may change."""

from __future__ import annotations

import copy
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from comfyserverless.host.bridge import CallInfo
from comfyserverless.host.dynprompt import DynamicPrompt

_KEPT = 16


class PromptShare:
    """Keep the mutable objects of the latest prompts, so that all their nodes get the same ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: tenant, prompt id -> (graph, extra_pnginfo, its JSON when it came), the latest last.
        self._prompts: OrderedDict[tuple[str, str], tuple[dict[str, Any], Any, str]] = OrderedDict()

    def of(self, about: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the graph and the extra_pnginfo of a prompt, for the first of its calls those that it
        brought."""
        key = (str(about.get("tenant", "default")), str(about.get("prompt_id", "")))
        graph, extra = about.get("prompt") or {}, about.get("extra_pnginfo")
        with self._lock:
            found = self._prompts.get(key)
            if found is None or (graph and not found[0]) or (extra is not None and found[1] is None):
                found = (copy.deepcopy(dict(graph)), copy.deepcopy(extra), _text(extra))
                self._prompts[key] = found
            self._prompts.move_to_end(key)
            while len(self._prompts) > _KEPT:
                self._prompts.popitem(last=False)
        return found[0], found[1]

    def changed_metadata(self, info: CallInfo) -> Any:
        """Return the extra_pnginfo of a prompt if a node has changed it since the last time, else None."""
        key = (info.tenant, info.prompt_id)
        with self._lock:
            found = self._prompts.get(key)
            if found is None or found[1] is None:
                return None
            text = _text(found[1])
            if text == found[2]:
                return None
            self._prompts[key] = (found[0], found[1], text)
            return found[1]


def hidden_values(about: Mapping[str, Any], node_id: str, graph: dict[str, Any], extra: Any) -> dict[str, Any]:
    """Return what hidden inputs give, by TAG."""
    given = about.get("extra_data") or {}
    dynamic = about.get("dynprompt") or {}
    return {
        "PROMPT": graph,
        "EXTRA_PNGINFO": extra,
        "UNIQUE_ID": node_id,
        "DYNPROMPT": DynamicPrompt(
            graph,
            dynamic.get("nodes") or {},
            dynamic.get("parents") or {},
            dynamic.get("display") or {},
            dynamic.get("real") or {},
        ),
        "AUTH_TOKEN_COMFY_ORG": given.get("auth_token_comfy_org"),
        "API_KEY_COMFY_ORG": given.get("api_key_comfy_org"),
        "COMFY_USAGE_SOURCE": given.get("comfy_usage_source"),
    }


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
