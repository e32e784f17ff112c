"""Turn value trees into what packs work with, and what packs return into value trees.

Of handles (MODEL, CLIP, VAE, CONTROL_NET, UPSCALE_MODEL) a pack gets objects that act like ComfyUI's. The rooms
that have such classes register them here, at import of their module (see `host.parts` for when that is):

    values.register(ModelRef, wrap=ModelProxy.of, unwrap_type=ModelProxy, unwrap=lambda proxy: proxy.to_ref())
    values.register_option("control", load=ControlChain.of)    # of the options of a CONDITIONING entry

`wrap(handle)` makes the object; `unwrap(object)` gives a value tree, whose leaves may be handles, literals,
tensors, and again objects that somebody unwraps; None says that this object has to stay in the node host
(as an ObjectRef). `load(tree)` turns what our own nodes keep under an option into what packs expect there.

What is no tensor, literal, list, dict with text keys, or such an object, stays in the node host and travels as
an ObjectRef, so that it is the same object for the next node. A value that holds such a thing somewhere stays
as a whole, so that its identity is kept too, and so does one of very many items; but in an entry of a
CONDITIONING and in a LATENT only the item itself stays, so that our own nodes can use the rest.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch

from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.core.values import HANDLE_TYPES, ObjectRef, TensorRef, Value
from comfyserverless.dataplane.store import TensorStore

Wrap = Callable[[Any], Any]
Unwrap = Callable[[Any], Value | None]

_wraps: dict[type, Wrap] = {}
_unwraps: dict[type, Unwrap] = {}
_option_loads: dict[str, Callable[[Any], Any]] = {}
_kind_loads: dict[str, Callable[[Any], Any]] = {}
_PLAIN = (type(None), bool, int, float, str, bytes)
_MOST_ITEMS = 50_000
#: of these, people want to see what is in them.
_BRACKETS: dict[type, tuple[str, str]] = {
    tuple: ("(", ")"),
    list: ("[", "]"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
}
_MOST_SHOWN = 100
_MOST_BITS = 4_000
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1


def register(
    handle: type | None,
    *,
    wrap: Wrap | None = None,
    unwrap_type: type | None = None,
    unwrap: Unwrap | None = None,
) -> None:
    """Say how handles of a type become objects, and objects of a class (and its subclasses) value trees."""
    if handle is not None and wrap is not None:
        _wraps[handle] = wrap
    if unwrap_type is not None and unwrap is not None:
        _unwraps[unwrap_type] = unwrap


def register_option(name: str, load: Callable[[Any], Any]) -> None:
    """Say how what our own nodes keep under an option of a CONDITIONING becomes what packs expect there."""
    _option_loads[name] = load


def register_kind(kind: str, load: Callable[[Any], Any]) -> None:
    """Say how the dicts of a kind (`{"kind": ...}`: NOISE, SAMPLER, GUIDER of our own nodes) become objects."""
    _kind_loads[kind] = load


def wrap(handle: Any) -> Any:
    """Return the object that stands for a handle; the handle itself if nobody makes objects of its type."""
    make = _wraps.get(type(handle))
    return handle if make is None else make(handle)


def unwrap(value: Any) -> Value | None:
    """Return the value tree that an object stands for, None if there is none."""
    for cls in type(value).__mro__:
        take = _unwraps.get(cls)
        if take is not None:
            return take(value)
    return None


def _words(value: Any, level: int = 4) -> str:
    """Write a value of built-in types as Python does, cut where it is long; runs no code of packs."""
    kind = type(value)
    if kind in (type(None), bool, float, complex) or (kind is int and value.bit_length() < _MOST_BITS):
        return repr(value)
    if kind in (str, bytes):
        return repr(value[:_MOST_SHOWN]) + ("..." if len(value) > _MOST_SHOWN else "")
    if isinstance(value, torch.Tensor):
        return f"tensor of {tuple(value.shape)}"
    if kind not in _BRACKETS:
        return f"<{kind.__module__}.{kind.__qualname__} object>"
    items = list(islice(value.items() if kind is dict else value, _MOST_SHOWN)) if level else []
    texts = [
        ": ".join(_words(part, level - 1) for part in (item if kind is dict else (item,))) for item in items
    ]
    texts += ["..."] if len(value) > len(items) else []
    opening, closing = _BRACKETS[kind]
    return f"{opening}{', '.join(texts)}{',' if kind is tuple and len(value) == 1 else ''}{closing}"


class _Stays(Exception):
    """Something in a value has no form outside of this process."""


class ObjectStore:
    """Hold the objects that other nodes may ask for, until they are freed."""

    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        #: all and only objects that were put and not freed.
        self._objects: dict[TensorId, Any] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, value: Any) -> ObjectRef:
        """Hold an object under a new name."""
        name = TensorId(f"{self._worker}:o{next(self._numbers)}")
        with self._lock:
            self._objects[name] = value
        kind = type(value)
        try:
            text = _words(value) if kind in _BRACKETS or kind in (int, complex) else ""
        except RuntimeError:  # a thread of the pack changes it just now
            text = ""
        return ObjectRef(name, self._worker, f"{kind.__module__}.{kind.__qualname__}", text)

    def get(self, ref: ObjectRef) -> Any:
        """Return an object. Raises WorkerError if it is of another process, or was freed."""
        with self._lock:
            if ref.id not in self._objects:
                raise WorkerError(f"{ref.type_name} {ref.id} is not in this process", "LostTensor")
            return self._objects[ref.id]

    def free(self, names: Iterable[TensorId]) -> None:
        """Forget objects; unknown names are ignored."""
        with self._lock:
            gone = [self._objects.pop(name, None) for name in names]
        del gone  # outside of the lock: their ends may run any code


class Codec:
    """Convert between value trees on the wire and the values of packs."""

    def __init__(self, store: TensorStore, objects: ObjectStore) -> None:
        self._store = store
        self._objects = objects

    def load(self, value: Value) -> Any:
        """Return what a value tree stands for: tensors as copies that may be written to, objects as such.

        Raises WorkerError (`LostTensor`) if a part of it is gone.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is list:
            return [self.load(item) for item in value]
        if kind is dict:
            return _made({key: self._load_item(key, item) for key, item in value.items()})
        if kind is TensorRef:
            return self._store.get(value).to("cpu", copy=True)
        return self._objects.get(value) if kind is ObjectRef else wrap(value)

    def _load_item(self, key: str, item: Value) -> Any:
        loaded = self.load(item)
        load = _option_loads.get(key)
        return loaded if load is None or item is None else load(loaded)

    def save(self, value: Any) -> Value:
        """Return one value of a pack as a tree that can be sent. Raises CapacityError if the arena is full."""
        made: list[Any] = []
        try:
            if _is_large(value):
                raise _Stays
            tree = self._save(value, made)
        except (_Stays, RecursionError):
            self.free(made)
            return self._objects.put(value)
        except BaseException:
            self.free(made)
            raise
        return tree

    def save_arguments(self, payload: Any, made: list[Any]) -> Value:
        """Return what a request carries as a tree: each argument by itself.

        made: takes what was put for it, to be freed (`free`) when the request is over.
        """
        if type(payload) is not dict:
            return self._save_part(payload, made)
        return {
            name: self._save_parts(item, made)
            if type(item) is dict and all(type(key) is str for key in item)
            else self._save_part(item, made)
            for name, item in payload.items()
        }

    def free(self, refs: Iterable[TensorRef | ObjectRef]) -> None:
        """Give up what `save` has put."""
        names = [ref.id for ref in refs]
        self._store.free(names)
        self._objects.free(names)

    def _save(self, value: Any, made: list[Any]) -> Value:
        kind = type(value)
        if kind in _PLAIN:
            return _checked(value)
        if isinstance(value, torch.Tensor):
            return self._save_tensor(value, made)
        if kind is list:
            if _is_conditioning(value):
                return [[self._save(entry[0], made), self._save_parts(entry[1], made)] for entry in value]
            return [self._save(item, made) for item in value]
        if kind is dict and all(type(key) is str for key in value):
            if isinstance(value.get("samples"), torch.Tensor):
                return self._save_parts(value, made)
            return {_checked(key): self._save(item, made) for key, item in value.items()}
        return self._save_other(value, made)

    def _save_parts(self, value: dict[str, Any], made: list[Any]) -> Value:
        """Save each item by itself: those that have no form of their own stay here one by one."""
        return {_checked(key): self._save_part(item, made) for key, item in value.items()}

    def _save_part(self, item: Any, made: list[Any]) -> Value:
        try:
            return self._save(item, made)
        except _Stays:
            ref = self._objects.put(item)
            made.append(ref)
            return ref

    def _save_tensor(self, value: torch.Tensor, made: list[Any]) -> Value:
        is_odd = value.is_meta or value.layout is not torch.strided or value.is_quantized
        if is_odd or type(value) not in _TENSORS:
            raise _Stays
        tree = self._store.put_tree(value.detach().contiguous())
        made.append(tree)
        return tree

    def _save_other(self, value: Any, made: list[Any]) -> Value:
        if isinstance(value, HANDLE_TYPES):
            return value
        tree = unwrap(value)
        if tree is not None:
            return self._save(tree, made)
        plain = _plain(value)
        if plain is None:
            raise _Stays
        return _checked(plain)


_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _is_large(value: Any) -> bool:
    """Tell whether a value has so many items that others would wait while it is sent and read."""
    left, stack = _MOST_ITEMS, [value]
    while stack:
        item = stack.pop()
        if type(item) in (list, dict):
            left -= len(item)
            if left < 0:
                return True
            stack += item if type(item) is list else item.values()
    return False


def _made(value: dict[str, Any]) -> Any:
    """Return the object that a dict of a registered kind stands for, else the dict."""
    kind = value.get("kind")
    load = _kind_loads.get(kind) if type(kind) is str else None
    return value if load is None else load(value)


def _is_conditioning(value: list[Any]) -> bool:
    return bool(value) and all(
        type(entry) in (list, tuple)
        and len(entry) == 2
        and isinstance(entry[0], torch.Tensor)
        and type(entry[1]) is dict
        and all(type(key) is str for key in entry[1])
        for entry in value
    )


def _plain(value: Any) -> Value:
    """Return the literal that a subclass of one is, or a number of numpy's; None for anything else."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        item = value.item()
        return item if type(item) in (bool, int, float, str) else None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__pos__(value)
    return float.__pos__(value) if isinstance(value, float) else None


def _checked(value: Any) -> Any:
    """Return a literal that has a wire form. Raises _Stays for others."""
    if type(value) is int and not _LEAST_INT <= value <= _MOST_INT:
        raise _Stays
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Stays from None
    return value
