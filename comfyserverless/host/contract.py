"""Define how node classes of one kind are described and called: the first contract (V1) and V3.

`contract_of(cls)` chooses. The V3 contract lives in `comfyserverless.host.api.contract` as an object `CONTRACT`
that implements `Contract`, with `matches(cls)` true for its classes; it is used as soon as that module exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from comfyserverless.core.hosting import NodeInfo


@dataclass(frozen=True, slots=True)
class ClassEntry:
    """A registered node class. python_module: `custom_nodes.Pack`; display_name: as shown."""

    name: str
    cls: Any
    python_module: str
    display_name: str


@dataclass(frozen=True, slots=True)
class HiddenValues:
    """What hidden inputs give. values: by TAG (PROMPT, DYNPROMPT, EXTRA_PNGINFO, UNIQUE_ID,
    AUTH_TOKEN_COMFY_ORG, API_KEY_COMFY_ORG); tags: argument -> TAG, as described."""

    values: Mapping[str, Any]
    tags: Mapping[str, str]

    def arguments(self) -> dict[str, Any]:
        """Return the hidden arguments by name; None for a tag that nobody knows."""
        return {name: self.values.get(tag) for name, tag in self.tags.items()}


class Contract(Protocol):
    """How classes of one kind behave. `given`: the submitted inputs, names -> literal or None for a link."""

    def matches(self, cls: Any) -> bool:
        """Tell whether a class is of this kind."""

    def describe(self, entry: ClassEntry, given: Mapping[str, Any] | None) -> NodeInfo:
        """Describe a class afresh, with the inputs that depend on what was submitted (None: nothing was).

        May raise anything that the class's own code raises.
        """

    def check(self, entry: ClassEntry, given: Mapping[str, Any], input_types: Mapping[str, str]) -> Any:
        """Call its validator with the arguments that it names; anything but true is a problem."""

    def change_token(self, entry: ClassEntry, given: Mapping[str, Any], hidden: HiddenValues) -> Any:
        """Call its IS_CHANGED or fingerprint_inputs."""

    def function(self, entry: ClassEntry, instance: Any, method: str, hidden: HiddenValues) -> Any:
        """Return what is called with the arguments by name: method `execute` or `check_lazy_status`.

        instance: what `new_instance` gave for this node. Raises AttributeError if there is no such method.
        """

    def new_instance(self, entry: ClassEntry) -> Any:
        """Make what lives as long as the node does, None for nothing."""

    def arguments(
        self, entry: ClassEntry, method: str, call: Mapping[str, Any], hidden: HiddenValues
    ) -> dict[str, Any]:
        """Return the arguments of a call as the method wants them: hidden ones too if they are passed by name,
        nested for dynamic inputs."""

    def outcome(self, entry: ClassEntry, returned: Any) -> Any:
        """Return what a method returned as a tuple, list, dict, blocker or None."""


_V3_MODULE = "comfyserverless.host.api.contract"


def contracts() -> Sequence[Contract]:
    """List the contracts, the more special one first."""
    from comfyserverless.host.classic.contract import CONTRACT

    found: list[Contract] = []
    try:
        found.append(import_module(_V3_MODULE).CONTRACT)
    except ModuleNotFoundError as exc:
        if exc.name is None or not _V3_MODULE.startswith(exc.name):
            raise
    return (*found, CONTRACT)


def contract_of(cls: Any) -> Contract:
    """Return the contract of a class; the first one takes all that no other does."""
    for contract in contracts():
        if contract.matches(cls):
            return contract
    raise TypeError(f"{cls!r} is no node class")
