"""Run modules of the model libraries, unchanged, on weights that come and go.

A skeleton is a module without numbers, one for all files of the same structure. Before a run, the parameters of
the file at hand (and a LoRA's own ones) are put into it, which moves no bytes. Where a layer begins, its module
tells the keeper, who sees to its weights, and ends the run there if it is interrupted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Generic, TypeVar

from torch import nn

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.modules import empty_module
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.run import ResidentModel, Run

M = TypeVar("M", bound=nn.Module)

_NAMED = 4
_KEPT = 12


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """What a run puts into a skeleton.

    parameters: of the module, or of the half of it that runs, by name; models: the layers that the run uses,
    the base first; steps: the number of the layer that begins at a module, by the module's name.
    """

    parameters: Mapping[str, nn.Parameter]
    models: tuple[ResidentModel, ...]
    steps: Mapping[str, int]


class Skeleton(Generic[M]):
    """One module without numbers; one run at a time.

    shapes: of its parameters, by name.
    """

    def __init__(self, module: M) -> None:
        self.module = module
        self.shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        self._places = {name: _place(module, name) for name in self.shapes}
        self._lock = threading.Lock()
        self._filled: Mapping[str, nn.Parameter] | None = None
        #: all and only modules that tell the keeper, by name, with the number of the layer that begins there
        self._telling: Mapping[str, int] = {}
        self._keeper: Keeper | None = None
        self._run: Run | None = None

    def check(self, shapes: Mapping[str, tuple[int, ...]], path: str) -> None:
        """Raise ModelFileError, naming `path`, if tensors are missing or of another shape."""
        missing = [name for name in self.shapes if name not in shapes]
        kind = type(self.module).__name__
        if missing:
            named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
            raise ModelFileError(f"{path}: lacks {len(missing)} tensors of {kind}: {named}")
        for name, wanted in self.shapes.items():
            if shapes[name] != wanted:
                raise ModelFileError(
                    f"{path}: tensors do not fit {kind}: {name} has the shape {list(shapes[name])},"
                    f" not {list(wanted)}"
                )

    @contextmanager
    def running(self, keeper: Keeper, filling: Filling) -> Iterator[M]:
        """Fill the module for one run within the block (see Keeper.running for what it raises)."""
        with self._lock, keeper.running(filling.models) as run:
            if self._filled is not filling.parameters:
                for name, parameter in filling.parameters.items():
                    parameters, leaf = self._places[name]
                    parameters[leaf] = parameter
                self._filled = filling.parameters
            self._tell_at(filling.steps)
            self._keeper, self._run = keeper, run
            try:
                yield self.module
            finally:
                self._keeper, self._run = None, None

    def _tell_at(self, steps: Mapping[str, int]) -> None:
        """Have the modules where layers begin tell the keeper first, when they are called.

        Their `forward` is replaced: a hook of torch's costs three times as much in each call. Whoever runs the
        parts of such a module without its forward calls its `begin_layer` before.
        """
        if steps == self._telling:
            return
        for name in self._telling:
            told = self.module.get_submodule(name).__dict__
            del told["forward"], told["begin_layer"]
        for name, number in steps.items():
            module = self.module.get_submodule(name)
            module.__dict__["forward"] = self._entering(number, module.forward)
            module.__dict__["begin_layer"] = partial(self._enter, number)
        self._telling = steps

    def _enter(self, number: int) -> None:
        if self._keeper is not None and self._run is not None:
            self._keeper.enter(self._run, number)

    def _entering(self, number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def enter(*inputs: Any, **named: Any) -> Any:
            self._enter(number)
            return forward(*inputs, **named)

        return enter


class Skeletons:
    """Keep the skeletons that were used last, by what they are built from."""

    def __init__(self) -> None:
        #: at most _KEPT, the least recently used first
        self._kept: OrderedDict[str, Skeleton[Any]] = OrderedDict()

    def take(self, kind: str, config: Mapping[str, Any], factory: Callable[[], M]) -> Skeleton[M]:
        """Return the skeleton of a kind of module with this configuration; factory: makes the module."""
        key = f"{kind} {sorted(config.items())}"
        if key not in self._kept:
            self._kept[key] = Skeleton(empty_module(factory))
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


def steps_of(order: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the number of each layer by the module where it begins; the first one begins with the run."""
    return {names[0]: number for number, names in enumerate(order) if number}


class Runner(Generic[M]):
    """A model of one file, or a variant of it with private layers, in its skeleton."""

    def __init__(
        self,
        keeper: Keeper,
        skeleton: Skeleton[M],
        base: ResidentModel,
        steps: Mapping[str, int],
        private: ResidentModel | None = None,
    ) -> None:
        self.base = base
        self.device = keeper.transfer.device
        self._keeper = keeper
        self._skeleton = skeleton
        self.models = (base,) if private is None else (base, private)
        self._filling = Filling(gather(self.models), self.models, steps)

    def with_private(self, private: ResidentModel) -> Runner[M]:
        """Return a variant with private layers over this one's."""
        return Runner(self._keeper, self._skeleton, self.base, self._filling.steps, private)

    @contextmanager
    def running(self) -> Iterator[M]:
        """Give the module for one run within the block (see Keeper.running for what it raises)."""
        with self._skeleton.running(self._keeper, self._filling) as module:
            yield module


def gather(models: Iterable[ResidentModel]) -> dict[str, nn.Parameter]:
    """Return the parameters of models by name; of equal names, the last model's."""
    return {
        name: value for model in models for layer in model.layers for name, value in layer.parameters.items()
    }


def _place(module: nn.Module, name: str) -> tuple[dict[str, nn.Parameter | None], str]:
    owner, _, leaf = name.rpartition(".")
    return module.get_submodule(owner)._parameters, leaf
