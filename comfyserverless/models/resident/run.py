"""Follow one run through the layers of a model: the step it is at, what it waits for, what each step takes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from comfyserverless.models.resident.layers import Layer
from comfyserverless.models.resident.profiles import Profile
from comfyserverless.models.resident.transfer import Transfer
from comfyserverless.residency.policy import LayerKey

_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Title:
    """What people call a model: which one of its file, and the LoRAs of private layers."""

    kind: str
    variant: str = ""


class ResidentModel:
    """The layers of one model in execution order, as the keeper knows them.

    name: says what it is, the same in every process; key: of this object in the layer table. group: the file
    whose models a workflow uses together. title: says it to people. profile: of the model; loaded_bytes,
    loaded_ns: of all loads so far.
    """

    def __init__(
        self,
        name: str,
        group: str,
        layers: Sequence[Layer],
        profile: Profile | None = None,
        title: Title | None = None,
    ) -> None:
        self.name = name
        self.title = title or Title(name)
        variant = f" with {self.title.variant}" if self.title.variant else ""
        self.key = f"{self.title.kind} of {group}{variant} #{next(_serial)}"
        self.group = group
        self.layers = tuple(layers)
        self.profile = profile or Profile.empty(len(layers))
        self.loaded_bytes = 0
        self.loaded_ns = 0
        for number, layer in enumerate(self.layers):
            if layer.size_bytes == 0:
                self.profile.saw_load(number, 0)

    def layer_keys(self, number: int) -> tuple[LayerKey, ...]:
        """Return the key of a layer, nothing if it has no bytes."""
        return ((self.key, number),) if self.layers[number].size_bytes else ()

    def load(self, number: int, transfer: Transfer) -> None:
        """Load and bind a layer, and take note of what it took. Raises what loading raises."""
        layer, begin_ns = self.layers[number], time.perf_counter_ns()
        block = layer.load((self.name, number), transfer)
        layer.bind(block)
        load_ns = time.perf_counter_ns() - begin_ns
        # What is late to begin ends early on an emulated link, which is no faster for that.
        load_ns = max(load_ns, round(transfer.link_s(block.moved_bytes) * 1e9))
        self.profile.saw_load(number, load_ns)
        self.loaded_ns += load_ns
        self.loaded_bytes += layer.size_bytes


class Run:
    """One pass over a model and its private layers; the keeper owns its state.

    is_complete: everything was resident at the start and stays so. is_stepwise: `enter` has to be told of
    each step.
    """

    def __init__(self, models: Sequence[ResidentModel], is_complete: bool, is_stepwise: bool) -> None:
        self.models = tuple(models)
        self.is_complete = is_complete
        self.is_stepwise = is_stepwise
        self.steps = [
            tuple(key for model in models for key in model.layer_keys(number))
            for number in range(len(models[0].layers))
        ]
        if not is_complete and not is_stepwise:
            self.steps = [tuple(key for step in self.steps for key in step)]
        #: the step whose layers it holds, -1 for none
        self.at = -1
        #: steps before this one are resident, or were when the loader looked
        self.loaded_to = 0
        #: steps before this one are wanted no more
        self.unwanted_to = 0
        #: the step that it stands still for
        self.waits_for: int | None = None
        self.error: Exception | None = None
        self.waited_ns = 0
        self.clock = StepClock(len(self.steps))


class StepClock:
    """Time the steps of a run, on the device; waits for loads are left out (on CUDA there must be none)."""

    def __init__(self, steps: int) -> None:
        self._is_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._steps = steps
        self._events: list[torch.cuda.Event] = []
        self._spent_ns: list[int] = []
        self._since_ns: int | None = None

    def stop(self) -> None:
        """End the step in progress, if there is one."""
        if self._is_cuda:
            return
        if self._since_ns is not None:
            self._spent_ns.append(time.perf_counter_ns() - self._since_ns)
            self._since_ns = None

    def start(self) -> None:
        """Begin the next step."""
        if self._is_cuda:
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
            self._events[-1].record()
        else:
            self._since_ns = time.perf_counter_ns()

    def spent_ns(self) -> list[int] | None:
        """Return what each step took, None if the run did not go through all of them."""
        if self._is_cuda:
            self.start()
            self._events[-1].synchronize()
            pairs = itertools.pairwise(self._events)
            self._spent_ns = [round(begin.elapsed_time(end) * 1e6) for begin, end in pairs]
        return self._spent_ns if len(self._spent_ns) == self._steps else None
