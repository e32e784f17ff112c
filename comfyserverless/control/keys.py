"""Reduce model handles to short keys: what placement compares and cost history is grouped by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from comfyserverless.control.metering.models import weight_label
from comfyserverless.core.values import (
    ClipRef,
    ControlNetRef,
    FileRef,
    LoraRef,
    ModelRef,
    UpscaleRef,
    VaeRef,
    Value,
    walk,
)

WeightsRef = ModelRef | ClipRef | VaeRef | ControlNetRef | UpscaleRef
_WEIGHTS = (ModelRef, ClipRef, VaeRef, ControlNetRef, UpscaleRef)


@lru_cache(maxsize=4096)
def weight_key(handle: WeightsRef) -> str:
    """Return a key that is equal for handles of the same weights (file and LoRAs), and names the files.

    Patches, and the types of union ControlNets, act where a model is evaluated; they neither load nor move
    anything.
    """
    if isinstance(handle, ModelRef) and handle.patches:
        return weight_key(msgspec.structs.replace(handle, patches=()))
    if isinstance(handle, ControlNetRef) and handle.types:
        return weight_key(ControlNetRef(handle.file))
    digest = hashlib.blake2b(msgspec.msgpack.encode(handle), digest_size=12).hexdigest()
    return weight_label(_file_names(handle), digest)


def _file_names(handle: WeightsRef) -> list[str]:
    return list(dict.fromkeys(os.path.basename(file.path) for file in _files(handle)))


def _files(handle: WeightsRef) -> Iterator[FileRef]:
    if isinstance(handle, ClipRef):
        yield from handle.files
    else:
        yield handle.file
        if isinstance(handle, VaeRef) and handle.encoder is not None:
            yield handle.encoder
    if isinstance(handle, ModelRef | ClipRef):
        for change in handle.loras:
            if isinstance(change, LoraRef):
                yield change.file
            else:
                yield from _files(change.other)


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
