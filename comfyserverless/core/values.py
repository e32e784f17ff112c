"""Define the value tree: what flows along an edge of a graph, and its wire form.

A value is None, bool, int, float, str, bytes, a list of values, a dict from str to values, or one of
the *handles* below. Handles are frozen: two equal handles mean the same weights or bytes, and that
equality is what caching, sharing between tenants and placement use. Tensors are referenced, never
carried. `Output` is a symbol of the control tower (the result of an invocation that may not have
run yet); it is replaced by its value before an invocation goes to a worker.

Wire form: msgpack, a handle is extension type 1 holding its tagged encoding (see `encode`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Union

import msgspec

from comfyserverless.core.ids import InvocationId, TensorId, WorkerId

Value = Any
"""A value tree (see the module docstring); typed as Any because Python has no recursive alias for it."""

Scalar = str | int | float | bool | None

PYTHON_PATCH = "python"
"""Patch: callables and objects of a custom pack. Argument `path`: a file named by its content's digest that
holds a cloudpickle of {model_options: dict as ComfyUI's, only what differs from an untouched model;
object_patches: dict of dotted name -> object}; it lives as long as the server. At most one per handle, the last
among its patches."""


class TensorRef(msgspec.Struct, frozen=True, tag="tensor"):
    """Point at an immutable tensor in a worker's arena.

    shape: elements; dtype: torch's name without the module (`float32`); offset_bytes: from the start of
    the owner's arena. The bytes are contiguous in C order.
    """

    id: TensorId
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    worker: WorkerId
    offset_bytes: int


class FileRef(msgspec.Struct, frozen=True, tag="file"):
    """Name a file by what it holds: path plus the size and time that change when it is replaced."""

    path: str
    size_bytes: int = 0
    mtime_ns: int = 0


class LoraRef(msgspec.Struct, frozen=True, tag="lora"):
    """One LoRA file at one strength, as applied to one model or text encoder."""

    file: FileRef
    strength: float


class MergeRef(msgspec.Struct, frozen=True, tag="merge"):
    """Another model of the same kind, mixed into one: every weight becomes weight * kept + other * added.

    shares: (how names of weights begin, kept, added); the longest beginning counts, and one is empty.
    """

    other: ModelRef | ClipRef
    shares: tuple[tuple[str, float, float], ...]

    def share_of(self, name: str) -> tuple[float, float]:
        """Return the factors (kept, added) of a weight by its name in the original layout."""
        fitting = (share for share in self.shares if name.startswith(share[0]))
        _, kept, added = max(fitting, key=lambda share: len(share[0]))
        return kept, added


class Patch(msgspec.Struct, frozen=True, tag="patch"):
    """One model modification by name (for example `model_sampling_discrete`) with literal arguments."""

    name: str
    arguments: tuple[tuple[str, Scalar], ...] = ()


WeightChange = LoraRef | MergeRef
"""One of the changes of a handle's weights, in the order in which they are made."""

DIFFERENTIAL_DIFFUSION = "differential_diffusion"
"""Patch: a noise mask says when each cell begins to change; argument `strength`, 0..1."""


class ModelRef(msgspec.Struct, frozen=True, tag="model"):
    """A diffusion model: the U-Net or transformer of `file`, with LoRAs and merges in order, and patches."""

    file: FileRef
    loras: tuple[LoraRef | MergeRef, ...] = ()
    patches: tuple[Patch, ...] = ()


class ClipRef(msgspec.Struct, frozen=True, tag="clip"):
    """One or more text encoders: those inside a checkpoint, or separate files.

    last_layer: ComfyUI's stop_at_clip_layer (-1 is the last layer), None for the family's own default.
    embeddings: folders searched for textual-inversion files.
    """

    files: tuple[FileRef, ...]
    kind: str = ""
    loras: tuple[LoraRef | MergeRef, ...] = ()
    last_layer: int | None = None
    embeddings: tuple[str, ...] = ()


TINY_AUTOENCODERS = ("taesd", "taesdxl", "taesd3", "taef1")
"""Names of tiny autoencoders; those of their files begin with `{name}_encoder.` and `{name}_decoder.`"""


class VaeRef(msgspec.Struct, frozen=True, tag="vae"):
    """The autoencoder inside a checkpoint, or of a file of its own.

    tiny: one of TINY_AUTOENCODERS; `file` holds its decoder then, and `encoder` its encoder.
    """

    file: FileRef
    encoder: FileRef | None = None
    tiny: str = ""


UNION_TYPES = (
    "openpose",
    "depth",
    "hed/pidi/scribble/ted",
    "canny/lineart/anime_lineart/mlsd",
    "normal",
    "segment",
    "tile",
    "repaint",
)
"""What union ControlNets can be used as, by number; files without the last two are common."""


class ControlNetRef(msgspec.Struct, frozen=True, tag="controlnet"):
    """A ControlNet file; types: numbers of UNION_TYPES, of which only union ControlNets take notice."""

    file: FileRef
    types: tuple[int, ...] = ()


class UpscaleRef(msgspec.Struct, frozen=True, tag="upscale"):
    """A file with an upscaler: a network that makes pictures larger."""

    file: FileRef


class PublishedRef(msgspec.Struct, frozen=True, tag="published"):
    """An output whose elements a worker publishes while it makes them; data: opaque to the control tower."""

    data: bytes


class ObjectRef(msgspec.Struct, frozen=True, tag="object"):
    """Stand for a Python object of a custom pack, which stays in the node host that made it.

    It is held and freed like a tensor. type_name: of its class, for people. text: what it is as Python, cut to
    a readable length, if it is made of plain values; else "".
    """

    id: TensorId
    worker: WorkerId
    type_name: str
    text: str = ""


HANDLE_TYPES = (
    TensorRef,
    ObjectRef,
    FileRef,
    LoraRef,
    Patch,
    ModelRef,
    ClipRef,
    VaeRef,
    ControlNetRef,
    UpscaleRef,
    PublishedRef,
)
Handle = Union[  # noqa: UP007
    TensorRef,
    ObjectRef,
    FileRef,
    LoraRef,
    Patch,
    ModelRef,
    ClipRef,
    VaeRef,
    ControlNetRef,
    UpscaleRef,
    PublishedRef,
]
_LITERALS = frozenset({type(None), bool, int, float, str, bytes})


class Output(msgspec.Struct, frozen=True):
    """Stand for output `port` of an invocation, optionally for a part of it (`path` of keys, indices)."""

    invocation: InvocationId
    port: str
    path: tuple[str | int, ...] = ()

    def __getitem__(self, key: str | int) -> Output:
        """Stand for one part of this output, without waiting for it."""
        return Output(self.invocation, self.port, (*self.path, key))


def walk(value: Value) -> Iterator[Value]:
    """Yield every leaf of a value tree (handles and Outputs are leaves), depth first, in order."""
    if type(value) is list:
        for item in value:
            yield from walk(item)
    elif type(value) is dict:
        for item in value.values():
            yield from walk(item)
    else:
        yield value


def transform(value: Value, leaf: Callable[[Value], Value]) -> Value:
    """Rebuild a value tree with every leaf replaced by `leaf(leaf)`; the input is unchanged."""
    if type(value) is list:
        return [transform(item, leaf) for item in value]
    if type(value) is dict:
        return {key: transform(item, leaf) for key, item in value.items()}
    return leaf(value)


def tensor_refs(value: Value) -> list[TensorRef]:
    """List the tensors that a value tree holds, in tree order, repeats included."""
    found: list[TensorRef] = []
    _collect(value, _TENSORS, found)
    return found


def held_refs(value: Value) -> list[TensorRef | ObjectRef]:
    """List what a value tree holds that takes up room in some process: tensors, and objects of the node host.

    In tree order, repeats included.
    """
    found: list[TensorRef | ObjectRef] = []
    _collect(value, _HELD, found)
    return found


def outputs_in(value: Value) -> list[Output]:
    """List the symbols of unfinished work that a value tree holds, in tree order."""
    found: list[Output] = []
    _collect(value, _OUTPUTS, found)
    return found


def replace_outputs(value: Value, resolve: Callable[[Output], Value]) -> Value:
    """Rebuild a value tree with every Output replaced; the input is unchanged, literals are shared."""
    kind = type(value)
    if kind in _LITERALS:
        return value
    if kind is list:
        return [item if type(item) in _LITERALS else replace_outputs(item, resolve) for item in value]
    if kind is dict:
        return {
            key: item if type(item) in _LITERALS else replace_outputs(item, resolve)
            for key, item in value.items()
        }
    return resolve(value) if kind is Output else value


_TENSORS = (TensorRef,)
_HELD = (TensorRef, ObjectRef)
_OUTPUTS = (Output,)


def _collect(value: Value, wanted: tuple[type, ...], found: list[Any]) -> None:
    """Append the leaves of these types; the plain loop matters, since this runs several times a step."""
    kind = type(value)
    if kind in wanted:
        found.append(value)
    elif kind is list:
        for item in value:
            if type(item) not in _LITERALS:
                _collect(item, wanted, found)
    elif kind is dict:
        for item in value.values():
            if type(item) not in _LITERALS:
                _collect(item, wanted, found)


def select(value: Value, path: tuple[str | int, ...]) -> Value:
    """Return the part of a value tree that `path` names. Raises KeyError or IndexError if it has none."""
    for key in path:
        value = value[key]
    return value


_EXT_HANDLE = 1
_handle_encoder = msgspec.msgpack.Encoder()
_handle_decoder = msgspec.msgpack.Decoder(Handle)


def _pack(value: Value) -> Value:
    kind = type(value)
    if kind in _LITERALS:
        return value
    if kind is list or kind is tuple:
        return [item if type(item) in _LITERALS else _pack(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _LITERALS else _pack(item) for key, item in value.items()}
    if kind in HANDLE_TYPES:
        return msgspec.msgpack.Ext(_EXT_HANDLE, _handle_encoder.encode(value))
    if kind is Output:
        raise TypeError(f"{value} is a symbol of the control tower and has no wire form")
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is no value")


def _unpack_ext(code: int, data: memoryview) -> Handle:
    if code != _EXT_HANDLE:
        raise ValueError(f"unknown extension type {code} in a value")
    return _handle_decoder.decode(data)


_tree_encoder = msgspec.msgpack.Encoder()
_tree_decoder = msgspec.msgpack.Decoder(ext_hook=_unpack_ext)


def encode(value: Value) -> bytes:
    """Encode a value tree for the wire, tuples as lists.

    Raises TypeError for an Output or a type outside the tree, ValueError for text that is not Unicode (lone
    surrogates), OverflowError for integers beyond 64 bits.
    """
    return _tree_encoder.encode(_pack(value))


def decode(data: bytes | memoryview) -> Value:
    """Decode what `encode` wrote. Tuples come back as lists. Raises msgspec.DecodeError on bad bytes."""
    return _tree_decoder.decode(data)
