"""Describe node classes as ComfyUI sees them: inputs with their options, outputs, flags, and the lowering.

Declarations are read-only data. Choices that depend on files are computed when they are asked for
(`FileChoices`), because a file uploaded a moment ago must be accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from comfyserverless.core.values import FileRef, Value
from comfyserverless.graph.lowering import LoweringContext, NodeResult

Section = Literal["required", "optional"]


class FileCatalog(Protocol):
    """What declarations may ask about files; implemented by the control room over the search paths."""

    def names(self, folder: str) -> list[str]:
        """List the model files of a folder key, sorted, relative, without repeats."""

    def find(self, folder: str, name: str) -> FileRef:
        """Return a model file by folder key and relative name. Raises PromptError if it is missing."""

    def input_names(self, content: str) -> list[str]:
        """List the files in the input folder; content: `image` or `latent`."""

    def has_input(self, name: str) -> bool:
        """Tell whether an annotated input name (`a.png [output]`) exists inside its base folder."""

    def input_identity(self, name: str) -> FileRef | None:
        """Return path, size and time of an annotated input name, None if `has_input` is false for it."""


@dataclass(frozen=True, slots=True)
class FileChoices:
    """A combo whose choices are the files of a model folder; more: what it offers after them."""

    folder: str
    more: Callable[[FileCatalog], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class InputChoices:
    """A combo whose choices are uploaded files of one content type (`image` or `latent`)."""

    content: str


InputType = str | tuple[str, ...] | FileChoices | InputChoices
"""A socket or widget type name (`INT`, `MODEL`), fixed combo choices, or choices computed from files."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input: name, type, options in ComfyUI's words (default, min, max, lazy, rawLink, tooltip
    ...).

    matches_any: it takes links of any type, whatever its type is called.
    """

    name: str
    type: InputType
    options: Mapping[str, Any] = field(default_factory=dict)
    section: Section = "required"
    matches_any: bool = False


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One declared output slot; match: the template of the inputs whose type it has (`COMFY_MATCHTYPE_V3`).

    type: a type name, or the choices of a combo: only combos with the same choices take those.
    """

    type: str | tuple[Any, ...]
    name: str = ""
    tooltip: str = ""
    is_list: bool = False
    matches_any: bool = False
    match: str = ""


Lowering = Callable[[LoweringContext, Mapping[str, Value]], Awaitable[NodeResult]]
"""Turn a node's input values (declared inputs that were given) into invocations and output values."""

LowerCalls = Callable[[LoweringContext, Sequence[Mapping[str, Value]]], Awaitable[Sequence[NodeResult]]]
"""Lower all mapped calls of a node at once, one result for each; for nodes that run in the node host."""

LazyCheck = Callable[[LoweringContext, Sequence[Mapping[str, Value]]], Awaitable[Sequence[str]]]
"""check_lazy_status: which lazy inputs are needed now, given the mapped calls with None for what is not
there."""

DynamicInputs = Callable[[Mapping[str, Any]], Sequence[InputSpec]]
"""The inputs of a node whose inputs depend on what was submitted (the raw `inputs` object).

Raises ValueError for names that cannot be.
"""

ChangeToken = Callable[[FileCatalog, Mapping[str, Any]], Any]
"""IS_CHANGED: a comparable token of constant inputs (linked ones are None); nan means always run."""

InputCheck = Callable[[FileCatalog, Mapping[str, Any]], Mapping[str, str]]
"""VALIDATE_INPUTS: problem text by input name; the named inputs of `checked_inputs` skip the combo check.

The name "" stands for every input that the check was given: its text is repeated for each.
"""


@dataclass(frozen=True, slots=True)
class RemoteCheck:
    """VALIDATE_INPUTS of a class whose code is elsewhere: `validate` asks for its answer (see `questions`).

    names: the inputs that it names, whose bounds and choices are left to it; takes_all: all of them.
    takes_types: it is told the types of links, which are left to it then.
    """

    names: frozenset[str] = frozenset()
    takes_all: bool = False
    takes_types: bool = False

    def covers(self, name: str) -> bool:
        """Tell whether bounds and choices of an input are left to it."""
        return self.takes_all or name in self.names


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """A node class: everything `/object_info`, validation, caching and lowering need to know of it.

    Inputs may have the options `lazy` (a link is followed only if `check_lazy` asks for it) and `rawLink` (the
    lowering gets the link itself: [node id, slot]). takes_undeclared_links: links to inputs that are not
    declared are arguments too. has_remote_token: IS_CHANGED is asked elsewhere (see `questions`), for every
    run.
    """

    name: str
    lower: Lowering
    inputs: Sequence[InputSpec]
    outputs: Sequence[OutputSpec] = ()
    display_name: str = ""
    category: str = ""
    description: str = ""
    output_node: bool = False
    hidden: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    python_module: str = "nodes"
    deprecated: bool = False
    experimental: bool = False
    dev_only: bool = False
    is_changed: ChangeToken | None = None
    check_inputs: InputCheck | None = None
    checked_inputs: frozenset[str] = frozenset()
    not_idempotent: bool = False
    input_is_list: bool = False
    is_async: bool = False
    lower_calls: LowerCalls | None = None
    check_lazy: LazyCheck | None = None
    dynamic_inputs: DynamicInputs | None = None
    takes_undeclared_links: bool = False
    remote_check: RemoteCheck | None = None
    has_remote_token: bool = False
    info: Mapping[str, Any] | None = None
    """The entry of `/object_info` if it is not to be made from the fields above (classes of packs)."""


def declared_for(declaration: NodeDeclaration, submitted: Mapping[str, Any]) -> NodeDeclaration:
    """Return the declaration of one node: with the inputs that it has for what was submitted.

    Raises what its `dynamic_inputs` raises.
    """
    if declaration.dynamic_inputs is None:
        return declaration
    return replace(declaration, inputs=tuple(declaration.dynamic_inputs(submitted)), dynamic_inputs=None)


class Declarations(Protocol):
    """The set of node classes that prompts may name."""

    def get(self, name: str) -> NodeDeclaration | None:
        """Return the declaration of a class, None if there is none."""

    def names(self) -> Sequence[str]:
        """List all class names in registration order."""
