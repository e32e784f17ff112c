"""Tell how far a node is: the bar that packs move, and the pictures that they show with it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from PIL import Image

from comfyserverless.host.bridge import bridge

Hook = Callable[..., None]
Preview = tuple[str, Image.Image, int | None]
"""Format (`JPEG` or `PNG`), picture, and the longest side in pixels that is shown (None: as it is)."""

_JPEG_QUALITY = 95
_OWNER = "comfy.utils"


def report(value: float, total: float, preview: Preview | None = None, node_id: str | None = None) -> None:
    """Send progress to the page; the hook of every bar unless a pack sets another.

    Raises InterruptProcessingException if the prompt was stopped.
    """
    bridge().progress(value, total, node_id, None if preview is None else encode_preview(preview))


def encode_preview(preview: Preview) -> bytes:
    """Encode a picture in its format, scaled down so that no side is longer than wanted."""
    kind, picture, longest_px = preview
    if longest_px is not None:
        picture = picture.copy()
        picture.thumbnail((longest_px, longest_px), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    if kind.upper() == "PNG":
        picture.save(buffer, format="PNG", compress_level=1)
    else:
        picture.convert("RGB").save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


class ProgressBar:
    """The progress of a node, of `total` steps. node_id: another one than the node that runs.

    Its hook is the one that `comfy.utils` has when it is made. Threads of a node may move it, too: it belongs
    to the call that has made it.
    """

    def __init__(self, total: float, node_id: str | None = None) -> None:
        self.total = total
        self.current: float = 0
        self.node_id = node_id
        owner = sys.modules.get(_OWNER)
        self._made_in = copy_context()
        self.hook: Hook | None = report if owner is None else vars(owner).get("PROGRESS_BAR_HOOK")

    def update_absolute(self, value: float, total: float | None = None, preview: Preview | None = None) -> None:
        """Say where it is; beyond the total counts as its end.

        Raises InterruptProcessingException if the prompt was stopped.
        """
        if total is not None:
            self.total = total
        self.current = min(value, self.total)
        if self.hook is None:
            return
        named = {} if self.node_id is None else {"node_id": self.node_id}
        tell = partial(self.hook, self.current, self.total, preview, **named)
        if bridge().call.invocation:
            tell()
        else:
            self._made_in.copy().run(tell)

    def update(self, value: float) -> None:
        """Go on by so many steps."""
        self.update_absolute(self.current + value)


def change_owner(name: str, value: Any) -> None:
    """Set a name of `comfy.utils`, which packs also read and assign themselves."""
    setattr(sys.modules[_OWNER], name, value)
