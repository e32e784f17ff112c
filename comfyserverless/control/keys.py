"""Reduce model handles to short keys: what placement compares and cost history is grouped by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from comfyserverless.core.values import ClipRef, ControlNetRef, ModelRef, VaeRef, Value, walk

_WEIGHTS = (ModelRef, ClipRef, VaeRef, ControlNetRef)


@lru_cache(maxsize=4096)
def weight_key(handle: ModelRef | ClipRef | VaeRef | ControlNetRef) -> str:
    """Return a key that is equal for equal handles (same file, LoRAs and patches)."""
    return hashlib.blake2b(msgspec.msgpack.encode(handle), digest_size=12).hexdigest()


def weight_keys(values: Iterable[Value]) -> tuple[str, ...]:
    """List the keys of the model handles in some input values, in order, without repeats."""
    keys: dict[str, None] = {}
    for value in values:
        for leaf in walk(value):
            if isinstance(leaf, _WEIGHTS):
                keys[weight_key(leaf)] = None
    return tuple(keys)


def cost_key(function: str, weights: tuple[str, ...]) -> str:
    """Group measured costs by function and by the weights it runs on."""
    return "|".join((function, *weights))
