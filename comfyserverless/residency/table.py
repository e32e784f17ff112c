"""Keep the account of which layers are in a worker's memory, within its budget.

The table decides; its owner loads and frees what it names, and tells when a load is over. A layer that is
*pinned* is being used or loaded, and never leaves. One that is *wanted* will be used by a run in progress: it
leaves only for a layer without which a run stands still. Bytes that the worker needs for communication are
*claimed*: they come off the budget at once, and weights leave as soon as they are not in use. Not safe for
several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from comfyserverless.core.errors import CapacityError, InvariantError, NoRoomError
from comfyserverless.residency.policy import Candidate, LayerKey, PolicyName, eviction_order, rank_layers


class _State(Enum):
    ABSENT = auto()
    LOADING = auto()
    RESIDENT = auto()


@dataclass(slots=True)
class _Model:
    sizes_bytes: tuple[int, ...]
    group: str
    ranks: list[int]
    states: list[_State]
    pins: list[int]
    wants: list[int]
    whole_pins: int = 0
    #: layers that are not resident
    missing: int = 0
    #: layers with bytes
    full: int = 0
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Space for layers: free `evicted` first, then load `missing`, then call `loaded` (or `failed`)."""

    keys: tuple[LayerKey, ...]
    missing: tuple[LayerKey, ...]
    evicted: tuple[LayerKey, ...]


@dataclass(frozen=True, slots=True)
class ModelState:
    """A copy of what the table knows of a model. is_active: a run uses it, or will."""

    model: str
    sizes_bytes: tuple[int, ...]
    prefix: int
    is_active: bool
    _states: tuple[_State, ...]

    def present(self) -> list[int]:
        """List the layers with bytes that are resident, in ascending order."""
        found = zip(self.sizes_bytes, self._states, strict=True)
        return [layer for layer, (size, state) in enumerate(found) if size and state is _State.RESIDENT]


@dataclass(slots=True)
class LayerTable:
    """The layers of all models of one worker; see the module for the words.

    budget_bytes: of all layers that are resident or loading. A layer of no bytes is always resident. Counts
    since the start: hit_layers: those that were resident when a run began to use their model; evicted_layers:
    those that left because others needed room.
    """

    budget_bytes: int
    policy: PolicyName = "layers"
    claimed_bytes: int = 0
    total_bytes: int = 0
    hit_layers: int = 0
    evicted_layers: int = 0
    #: all registered models, least recently used first
    _models: dict[str, _Model] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget_bytes < 0:
            raise ValueError(f"budget_bytes is {self.budget_bytes}; allowed: 0 or more")

    @property
    def limit_bytes(self) -> int:
        """Return what weights may take now: the budget less what is claimed."""
        return max(0, self.budget_bytes - self.claimed_bytes)

    def __contains__(self, model: str) -> bool:
        return model in self._models

    def models(self) -> list[str]:
        """List the registered models, least recently used first."""
        return list(self._models)

    def add(self, model: str, sizes_bytes: Sequence[int], group: str = "", prefix: int | None = None) -> None:
        """Register a model, with nothing of it resident; prefix: None for all of its layers.

        Raises ValueError for a negative size, or a model that is registered already.
        """
        if model in self._models or min(sizes_bytes, default=0) < 0:
            raise ValueError(f"{model!r} is registered already, or a size is negative")
        count = len(sizes_bytes)
        states = [_State.ABSENT if size else _State.RESIDENT for size in sizes_bytes]
        record = _Model(tuple(sizes_bytes), group, [], states, [0] * count, [0] * count)
        record.missing = record.full = states.count(_State.ABSENT)
        self._models[model] = record
        self.set_prefix(model, count if prefix is None else prefix)

    def remove(self, model: str) -> None:
        """Forget a model. Raises InvariantError if something of it is resident or in use."""
        if self.is_in_use(model) or self.present(model):
            raise InvariantError(f"{model!r} is removed while layers of it are there or in use")
        del self._models[model]

    def set_prefix(self, model: str, layers: int) -> None:
        """Set how many first layers hide the load of the rest."""
        record = self._models[model]
        record.prefix = layers
        record.ranks = rank_layers(record.sizes_bytes, layers)

    def touch(self, model: str) -> None:
        """Make a model the most recently used: a run begins to use it."""
        self._models[model] = record = self._models.pop(model)
        self.hit_layers += record.full - record.missing

    def look(self) -> list[ModelState]:
        """Copy the state of all models, least recently used first; quick, as the owner holds its lock."""
        return [
            ModelState(model, each.sizes_bytes, each.prefix, self._is_active(each), tuple(each.states))
            for model, each in self._models.items()
        ]

    def present(self, model: str) -> list[int]:
        """List the layers with bytes that are resident, in ascending order."""
        record = self._models[model]
        return [
            layer
            for layer, state in enumerate(record.states)
            if state is _State.RESIDENT and record.sizes_bytes[layer]
        ]

    def is_complete(self, model: str) -> bool:
        """Return whether all layers are resident."""
        return self._models[model].missing == 0

    def is_in_use(self, model: str) -> bool:
        """Return whether a run uses or will use the model."""
        return self._is_active(self._models[model])

    def is_idle(self) -> bool:
        """Return whether no layer of any model is in use or being loaded."""
        return not any(record.whole_pins or any(record.pins) for record in self._models.values())

    def are_resident(self, keys: Iterable[LayerKey]) -> bool:
        """Return whether all of these layers are resident."""
        return all(self._models[model].states[layer] is _State.RESIDENT for model, layer in keys)

    def pin(self, keys: Iterable[LayerKey]) -> None:
        """Mark resident layers as in use, once more. Raises InvariantError for one that is not resident."""
        for model, layer in keys:
            if self._models[model].states[layer] is not _State.RESIDENT:
                raise InvariantError(f"layer {layer} of {model!r} is used, and not resident")
            self._models[model].pins[layer] += 1

    def unpin(self, keys: Iterable[LayerKey]) -> None:
        """End one use of each. Raises InvariantError for one that is not in use."""
        for model, layer in keys:
            self._models[model].pins[layer] -= 1
            if self._models[model].pins[layer] < 0:
                raise InvariantError(f"layer {layer} of {model!r} is let go more often than it was used")

    def pin_whole(self, model: str) -> None:
        """Mark a complete model as in use. Raises InvariantError if layers are missing."""
        if self._models[model].missing:
            raise InvariantError(f"{model!r} is used as a whole, and {self._models[model].missing} layers lack")
        self._models[model].whole_pins += 1

    def unpin_whole(self, model: str) -> None:
        """End one use of a whole model. Raises InvariantError if it is not in use."""
        self._models[model].whole_pins -= 1
        if self._models[model].whole_pins < 0:
            raise InvariantError(f"{model!r} is let go more often than it was used")

    def want(self, keys: Iterable[LayerKey], by: int = 1) -> None:
        """Say that a run will use these layers (by=1), or does not need them any more (by=-1)."""
        for model, layer in keys:
            self._models[model].wants[layer] += by

    def reserve(self, keys: Sequence[LayerKey], is_urgent: bool = False) -> Reservation | None:
        """Take space for the layers that are absent; all of them are pinned until `loaded` or `failed`.

        is_urgent: a run stands still without them, so wanted layers of others may leave. None when there is no
        space now (nothing has changed then). Pre: none of them is loading. Raises CapacityError if they
        could not be held together even alone, NoRoomError if only claims are in the way.
        """
        missing = tuple(key for key in keys if self._state(key) is _State.ABSENT)
        if (size_bytes := sum(self._size(key) for key in keys)) > self.limit_bytes:
            raise (NoRoomError if size_bytes <= self.budget_bytes else CapacityError)(self._too_large(keys))
        needed_bytes = self.total_bytes + sum(self._size(key) for key in missing) - self.limit_bytes
        evicted = self._choose(needed_bytes, frozenset(keys), is_urgent)
        if evicted is None:
            return None
        self._evict(evicted)
        self.evicted_layers += len(evicted)
        for model, layer in missing:
            self._models[model].states[layer] = _State.LOADING
            self.total_bytes += self._models[model].sizes_bytes[layer]
        for model, layer in keys:
            self._models[model].pins[layer] += 1
        return Reservation(tuple(keys), missing, tuple(evicted))

    def loaded(self, reservation: Reservation) -> None:
        """Take note that the missing layers of a reservation are there; the pins of the reservation end."""
        for model, layer in reservation.missing:
            self._models[model].states[layer] = _State.RESIDENT
            self._models[model].missing -= 1
        self.unpin(reservation.keys)

    def failed(self, reservation: Reservation) -> None:
        """Take note that the missing layers of a reservation did not come; their space is free again."""
        for key in reservation.missing:
            self._models[key[0]].states[key[1]] = _State.ABSENT
            self.total_bytes -= self._size(key)
        self.unpin(reservation.keys)

    def claim(self, claimed_bytes: int) -> list[LayerKey]:
        """Set what communication needs; returns the layers that leave now (`trim` names the rest later)."""
        self.claimed_bytes = claimed_bytes
        return self.trim()

    def trim(self) -> list[LayerKey]:
        """Return the layers that leave because more is resident than may be, as far as they are not in use."""
        evicted: list[LayerKey] = []
        if self.total_bytes > self.limit_bytes:
            for unit in self._units(frozenset(), are_wanted=True):
                evicted += unit
                self._evict(unit)
                if self.total_bytes <= self.limit_bytes:
                    break
        self.evicted_layers += len(evicted)
        return evicted

    def shrink(self, model: str, layers: int) -> list[LayerKey]:
        """Return the layers from number `layers` on, which leave as far as they are not in use."""
        gone = [
            (model, layer)
            for layer in self.present(model)
            if layer >= layers and self._is_free((model, layer), are_wanted=True)
        ]
        self._evict(gone)
        return gone

    def validate(self) -> None:
        """Raise InvariantError unless the account adds up."""
        held = [
            record.sizes_bytes[layer]
            for record in self._models.values()
            for layer, state in enumerate(record.states)
            if state is not _State.ABSENT
        ]
        if sum(held) != self.total_bytes:
            raise InvariantError(f"layers hold {sum(held)} bytes, the account says {self.total_bytes}")
        for model, record in self._models.items():
            lacking = [layer for layer, state in enumerate(record.states) if state is not _State.RESIDENT]
            used = [layer for layer in lacking if record.pins[layer] and record.states[layer] is _State.ABSENT]
            if len(lacking) != record.missing or used or (record.whole_pins and lacking):
                raise InvariantError(f"{model!r}: layers {lacking} lack, {record.missing} counted, {used} used")

    def _state(self, key: LayerKey) -> _State:
        return self._models[key[0]].states[key[1]]

    def _size(self, key: LayerKey) -> int:
        return self._models[key[0]].sizes_bytes[key[1]]

    def _choose(self, needed_bytes: int, kept: frozenset[LayerKey], is_urgent: bool) -> list[LayerKey] | None:
        """Return what leaves to free so many bytes, None if that is not possible now."""
        if self.policy == "none":
            return self._all_but(needed_bytes, kept)
        if needed_bytes <= 0:
            return []
        chosen: dict[LayerKey, None] = {}
        for are_wanted in (False, True) if is_urgent else (False,):
            for unit in self._units(kept, are_wanted):
                fresh = [key for key in unit if key not in chosen]
                chosen |= dict.fromkeys(fresh)
                needed_bytes -= sum(self._size(key) for key in fresh)
                if needed_bytes <= 0:
                    return list(chosen)
        return None

    def _all_but(self, needed_bytes: int, kept: frozenset[LayerKey]) -> list[LayerKey] | None:
        """Return all that is not in use: without caching, nothing outlasts the use of another model."""
        models = {model for model, _ in kept}
        everything = [
            key for unit in self._units(kept, are_wanted=True) for key in unit if key[0] not in models
        ]
        freed_bytes = sum(self._size(key) for key in everything)
        return everything if freed_bytes >= needed_bytes else None

    def _units(self, kept: frozenset[LayerKey], are_wanted: bool) -> Iterator[tuple[LayerKey, ...]]:
        """Yield what may leave, in order; are_wanted: also layers that a run will use."""
        candidates = [
            Candidate(model, record.group, self.present(model), record.ranks, self._is_active(record))
            for model, record in self._models.items()
        ]
        for unit in eviction_order(self.policy, candidates):
            leaving = tuple(key for key in unit if key not in kept)
            if all(self._is_free(key, are_wanted) for key in leaving):
                yield leaving

    def _is_free(self, key: LayerKey, are_wanted: bool) -> bool:
        model, layer = self._models[key[0]], key[1]
        return not (model.pins[layer] or model.whole_pins or (model.wants[layer] and not are_wanted))

    def _is_active(self, record: _Model) -> bool:
        return bool(record.whole_pins or any(record.pins) or any(record.wants))

    def _evict(self, keys: Iterable[LayerKey]) -> None:
        for key in keys:
            self._models[key[0]].states[key[1]] = _State.ABSENT
            self._models[key[0]].missing += 1
            self.total_bytes -= self._size(key)

    def _too_large(self, keys: Sequence[LayerKey]) -> str:
        need_bytes, names = sum(self._size(key) for key in keys), sorted({model for model, _ in keys})
        claimed = f", of which {self.claimed_bytes} are taken by results" if self.claimed_bytes else ""
        return (
            f"{len(keys)} layers of {', '.join(names)} need {need_bytes} bytes at once, the worker's memory for"
            f" weights is {self.budget_bytes} bytes{claimed}; allow more (--device-memory)"
        )
