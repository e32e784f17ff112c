"""Give nodes cache keys: equal keys mean equal results, whatever ids and titles the nodes have.

A key is a digest over the class, the change token, and every input by name: a constant, or the key of the
source with the slot. Chaining digests instead of spelling out all ancestors keeps keys small, and makes
equal branches one, however they are shared. A node gets None (never cached) if its token or a constant is
NaN or has no comparable form, if its links lead nowhere or in a circle, or if that holds for a node before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NewType

from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import FileRef
from comfyserverless.graph.declaration import FileCatalog
from comfyserverless.graph.plan import Constant, Link, Plan, PlanNode
from comfyserverless.graph.questions import Tokens, constants_of

Signature = NewType("Signature", bytes)
"""A cache key; compare and hash it, nothing else."""

_DIGEST_BYTES = 16


class _Incomparable(Exception):
    """A value has no form that equals itself next time."""


def signatures(
    plan: Plan, catalog: FileCatalog, tokens: Tokens | None = None
) -> dict[NodeId, Signature | None]:
    """Return the cache key of every node of a plan, unreachable ones too; None is "never cached".

    Calls each node's change token (IS_CHANGED) once; a token that raises counts as NaN. tokens: the answers to
    `questions.token_questions`; a missing one counts as NaN.
    """
    keys: dict[NodeId, Signature | None] = {}
    sign(plan.nodes, Signing(plan.nodes, plan.prompt, catalog, tokens or {}), keys)
    return keys


@dataclass(frozen=True, slots=True)
class Signing:
    """What keys are made of. nodes: those of the run, and more than are to be signed perhaps."""

    nodes: Mapping[NodeId, PlanNode]
    prompt: Mapping[str, Any]
    catalog: FileCatalog
    tokens: Tokens


def sign(wanted: Iterable[NodeId], signing: Signing, keys: dict[NodeId, Signature | None]) -> None:
    """Add the keys of more nodes, and of what is before them, to those that are there."""
    for node in wanted:
        if node not in keys:
            _sign(node, signing, keys)


def _sign(root: NodeId, plan: Signing, keys: dict[NodeId, Signature | None]) -> None:
    """Sign a node and what is before it, sources first; a node met while it is open closes a circle."""
    stack = [root]
    opened: set[NodeId] = set()
    while stack:
        node = stack[-1]
        if node in keys:
            stack.pop()
            continue
        sources = [value.source for value in plan.nodes[node].inputs.values() if isinstance(value, Link)]
        waiting = [source for source in sources if source in plan.nodes and source not in keys]
        if node in opened or not waiting:
            stack.pop()
            # Sources that still wait for the second visit are open themselves: a circle.
            keys[node] = None if waiting else _digest(plan.nodes[node], plan, keys)
        else:
            opened.add(node)
            stack.extend(waiting)


def _digest(node: PlanNode, plan: Signing, keys: Mapping[NodeId, Signature | None]) -> Signature | None:
    declaration = node.declaration
    parts: list[Any] = [declaration.name]
    if declaration.not_idempotent or "UNIQUE_ID" in declaration.hidden.values():
        parts.append(("id", node.id))
    try:
        parts.append(("token", _change_token(node, plan)))
        for name in sorted(node.inputs):
            value = node.inputs[name]
            if isinstance(value, Constant):
                parts.append((name, "is", value.value))
            elif (source := keys.get(value.source)) is None:
                return None
            else:
                parts.append((name, "from", source, value.slot))
        encoded = _encode(parts)
    except _Incomparable:
        return None
    return Signature(blake2b(encoded, digest_size=_DIGEST_BYTES).digest())


def _change_token(node: PlanNode, plan: Signing) -> Any:
    given = plan.prompt.get(node.id)
    if isinstance(given, Mapping) and "is_changed" in given:
        return given["is_changed"]
    if node.declaration.has_remote_token:
        return plan.tokens.get(node.id, math.nan)
    if node.declaration.is_changed is None:
        return None
    try:
        return node.declaration.is_changed(plan.catalog, constants_of(node))
    except Exception as exc:  # the token may be a pack's code
        raise _Incomparable from exc


def _encode(value: Any) -> bytes:
    """Write a value so that equal values, and only they, give equal bytes (1, 1.0 and True are equal)."""
    written: list[bytes] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if type(item) is _Raw:
            written.append(item.data)
        elif isinstance(item, list | tuple):
            written.append(b"[")
            stack.append(_Raw(b"]"))
            stack.extend(reversed(item))
        elif isinstance(item, Mapping):
            written.append(b"{")
            stack.append(_Raw(b"}"))
            for key in sorted(item, key=str, reverse=True):
                stack.extend((item[key], key))
        else:
            written.append(_encode_scalar(item))
    return b"".join(written)


class _Raw:
    """Bytes that are written as they are."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _encode_scalar(item: Any) -> bytes:
    if item is None:
        return b"n"
    if isinstance(item, str):
        return _counted(b"s", item.encode("utf-8", "surrogatepass"))
    if isinstance(item, bytes):
        return _counted(b"b", item)
    if isinstance(item, int | float):
        return _encode_number(item)
    if isinstance(item, FileRef):
        return _encode(("file", item.path, item.size_bytes, item.mtime_ns))
    raise _Incomparable


def _encode_number(item: int | float) -> bytes:
    if isinstance(item, float):
        if math.isnan(item):
            raise _Incomparable
        if not item.is_integer():
            return _counted(b"f", item.hex().encode())
    return _counted(b"i", hex(int(item)).encode())


def _counted(mark: bytes, data: bytes) -> bytes:
    return b"%b%d:%b" % (mark, len(data), data)
