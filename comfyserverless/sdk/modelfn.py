"""Give authors the base class of a model function (paper, section 4).

Built-in functions and functions of users are the same class and take the same path. A model function is
stateless: same inputs and seed, same outputs; so a retry on another worker is safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from comfyserverless.core.modelfn import FunctionSpec, Lane, Port


class IoSetup:
    """Collect the ports that `setup_io` declares, in order. Raises ValueError for what cannot be declared."""

    def __init__(self) -> None:
        self._inputs: dict[str, Port] = {}
        self._outputs: dict[str, Port] = {}

    def add_input(self, name: str, *, callback: bool = False) -> None:
        """Declare an input; a callback input may be consumed while its producer still runs."""
        if name in self._inputs:
            raise ValueError(f"input {name!r} is declared twice")
        self._inputs[name] = Port(name, callback)

    def add_output(self, name: str, *, callback: bool = False) -> None:
        """Declare an output; the value of a callback output is a `Streamed`, and it is the only output."""
        if name in self._outputs:
            raise ValueError(f"output {name!r} is declared twice")
        if self._outputs and (callback or any(port.callback for port in self._outputs.values())):
            raise ValueError(f"output {name!r} is declared beside another: a callback output is the only one")
        self._outputs[name] = Port(name, callback)

    def ports(self) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return (inputs, outputs) as declared."""
        return tuple(self._inputs.values()), tuple(self._outputs.values())


@dataclass(frozen=True, slots=True)
class Streamed:
    """The value of a callback output: lists by key, whose elements are made one by one.

    The worker takes the elements as they come, and lets consumers of a callback input have each at once; others
    get a dict of lists. lengths: of each list; elements: yields (key, index, value), each once, in the order in
    which consumers need them.
    """

    lengths: Mapping[str, int]
    elements: Iterator[tuple[str, int, Any]]

    def collect(self) -> dict[str, list[Any]]:
        """Make all elements and return the lists. To be called once."""
        lists: dict[str, list[Any]] = {key: [None] * length for key, length in self.lengths.items()}
        for key, index, value in self.elements:
            lists[key][index] = value
        return lists


@dataclass(frozen=True, slots=True)
class Later:
    """The value of an output that only shows what the others are: the bytes of a picture file.

    make: is called beside what follows, on another thread, when the other outputs are stored already; it may
    never be called, and what it raises fails nothing.
    """

    make: Callable[[], bytes]


class ModelFn(ABC):
    """One model function: declare ports, load components, run.

    name: unique, `room.verb`; lane: `gpu` for model compute, `cpu` for host work.
    """

    name: ClassVar[str]
    lane: ClassVar[Lane] = "gpu"

    @abstractmethod
    def setup_io(self, io: IoSetup) -> None:
        """Declare the inputs and outputs."""

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Return the components that `execute` needs, taken from the worker's model pool by handle.

        inputs: handles and literals of this call (tensors are not fetched yet). Time spent here is charged
        as load.
        """
        return {}

    @abstractmethod
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Run on inputs whose TensorRefs were replaced by tensors; return a value per output port."""

    def spec(self) -> FunctionSpec:
        """Return the declaration that the control tower schedules by."""
        io = IoSetup()
        self.setup_io(io)
        return FunctionSpec(self.name, self.lane, *io.ports())
