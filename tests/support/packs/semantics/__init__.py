"""Node classes of our own, one for each rule of execution that packs rely on (V1 contract)."""

from __future__ import annotations

from . import blocking, calling, expanding, lazy, tokens, validating

NODE_CLASS_MAPPINGS = {
    **blocking.NODES,
    **calling.NODES,
    **expanding.NODES,
    **lazy.NODES,
    **tokens.NODES,
    **validating.NODES,
}
