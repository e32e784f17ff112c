"""A pack with a schema: one node for every part of the V3 contract."""

from __future__ import annotations

from comfy_api.latest import ComfyAPI, ComfyExtension, io

from .dynamic import AutogrowSum, ComboMode, LazyRows, Rows
from .flow import Blocks, BlocksItem, Expands, Switch
from .plain import AsyncAdd, Checked, Counted, Fingerprint, Hidden, Lists, StatefulTry
from .showing import Previews, Reports, Sounds, Waits

LOADED: list[str] = []


class Extension(ComfyExtension):
    """Hand over the nodes."""

    async def on_load(self) -> None:
        """Tell of a class that has a new name."""
        LOADED.append("on_load")
        await ComfyAPI().node_replacement.register(io.NodeReplace("V3AsyncAdd", "V3OldAdd"))

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """Return the classes."""
        assert LOADED == ["on_load"]
        return [
            AsyncAdd,
            AutogrowSum,
            Blocks,
            BlocksItem,
            Checked,
            ComboMode,
            Counted,
            Expands,
            Fingerprint,
            Hidden,
            LazyRows,
            Lists,
            Previews,
            Reports,
            Rows,
            Sounds,
            StatefulTry,
            Switch,
            Waits,
        ]


async def comfy_entrypoint() -> Extension:
    """Return the extension."""
    return Extension()
