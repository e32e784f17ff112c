"""Define how a pack hands over node classes with a schema: `comfy_entrypoint` gives a `ComfyExtension`."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from comfyserverless.host.api.describing import is_v3
from comfyserverless.host.api.io.node import ComfyNode

ENTRYPOINT = "comfy_entrypoint"
"""What a pack's module calls the function."""


class ComfyExtension(ABC):
    """A pack's node classes."""

    async def on_load(self) -> None:  # noqa: B027  most packs have nothing to prepare
        """Prepare what the pack needs; awaited once, before the classes are asked for."""

    @abstractmethod
    async def get_node_list(self) -> list[type[ComfyNode]]:
        """Return the node classes."""


async def nodes_of(entrypoint: Callable[[], Any]) -> dict[str, type[ComfyNode]]:
    """Return the node classes of a pack's `comfy_entrypoint` (sync or async) by node_id.

    Raises TypeError if it gives something else, and whatever the pack raises.
    """
    extension = entrypoint()
    if inspect.isawaitable(extension):
        extension = await extension
    if not isinstance(extension, ComfyExtension):
        raise TypeError(f"{ENTRYPOINT} returned a {type(extension).__name__}, not a ComfyExtension")
    await extension.on_load()
    classes = await extension.get_node_list()
    if not isinstance(classes, list | tuple):
        raise TypeError(f"get_node_list returned a {type(classes).__name__}, not a list")
    for cls in classes:
        if not is_v3(cls):
            raise TypeError(f"get_node_list returned {cls!r}, which is no io.ComfyNode class")
    return {cls.GET_SCHEMA().node_id: cls for cls in classes}


def load_nodes(entrypoint: Callable[[], Any]) -> dict[str, type[ComfyNode]]:
    """Return what `nodes_of` does, from code that is not async; works beside a running event loop too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(nodes_of(entrypoint))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, nodes_of(entrypoint)).result()
