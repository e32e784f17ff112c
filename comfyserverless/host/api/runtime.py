"""Answer `ComfyAPI`: what a node may tell the server while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

from comfyserverless.functions.resampling import to_8bit
from comfyserverless.host.api.io.schema import NodeReplace
from comfyserverless.host.bridge import bridge
from comfyserverless.host.flags.arguments import arguments
from comfyserverless.host.helpers.progress import encode_preview

log = logging.getLogger(__name__)

#: all and only replacements that packs have registered: old class -> entries of `/node_replacements`.
_replacements: dict[str, list[dict[str, Any]]] = {}


def registered_replacements() -> dict[str, list[dict[str, Any]]]:
    """Return what packs have registered: old class -> entries of `/node_replacements`, in order."""
    return {old: list(entries) for old, entries in _replacements.items()}


class ExecutionSync:
    """Progress of the node that runs."""

    def set_progress(
        self,
        value: float,
        max_value: float,
        node_id: str | None = None,
        preview_image: Any = None,
        ignore_size_limit: bool = False,
    ) -> None:
        """Report value of max_value, at another node if one is named.

        preview_image: a PIL picture, or a tensor [B, H, W, C] or [H, W, C] of which the first is shown; it is
        made smaller to the size of previews unless ignore_size_limit. Raises InterruptProcessingException if
        the prompt was stopped.
        """
        preview = None
        if preview_image is not None:
            longest_px = None if ignore_size_limit else int(arguments().preview_size)
            preview = encode_preview(("JPEG", _picture(preview_image), longest_px))
        bridge().progress(value, max_value, node_id, preview)


class NodeReplacementSync:
    """Names of classes that others have taken the place of."""

    def register(self, node_replace: NodeReplace) -> None:
        """Say that a class has taken the place of another."""
        _replacements.setdefault(node_replace.old_node_id, []).append(node_replace.as_dict())


class CachingSync:
    """Stores of results beside our own."""

    def register_provider(self, provider: Any) -> None:
        """Take note of a store and never use it: results are kept by the server itself."""
        log.warning("%s is not used: this server keeps results itself", type(provider).__name__)

    def unregister_provider(self, provider: Any) -> None:
        """Do nothing: none is used."""


class ComfyAPISync:
    """What a node may tell the server; returns when it is done."""

    VERSION = "latest"
    STABLE = False

    def __init__(self) -> None:
        self.execution = ExecutionSync()
        self.node_replacement = NodeReplacementSync()
        self.caching = CachingSync()


class _Awaitable:
    """Offer the methods of an object as coroutines."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._target, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        call.__name__ = name
        return call


class ComfyAPI:
    """The same to be awaited."""

    VERSION = ComfyAPISync.VERSION
    STABLE = ComfyAPISync.STABLE

    def __init__(self) -> None:
        sync = ComfyAPISync()
        self.execution = _Awaitable(sync.execution)
        self.node_replacement = _Awaitable(sync.node_replacement)
        self.caching = _Awaitable(sync.caching)


def _picture(preview: Any) -> Image.Image:
    """Return a preview as a picture. Raises TypeError for what is none."""
    if isinstance(preview, Image.Image):
        return preview
    if not isinstance(preview, torch.Tensor):
        raise TypeError(f"a preview is a picture of PIL or a tensor, not a {type(preview).__name__}")
    batch = preview if preview.dim() == 4 else preview[None]
    return Image.fromarray(to_8bit(batch[:1])[0])
