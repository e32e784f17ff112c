"""Hold the result of reading a prompt: the plan that everything after validation works on.

A prompt's raw JSON is read once, by `graph.validation`; later rooms read the Plan only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import NodeDeclaration

if TYPE_CHECKING:
    from comfyserverless.graph.questions import Question


@dataclass(frozen=True, slots=True)
class Link:
    """An input fed by output `slot` of another node."""

    source: NodeId
    slot: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An input given as a literal, after coercion to its declared type."""

    value: Any


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node of the submitted graph: its declaration and its inputs in submitted order."""

    id: NodeId
    declaration: NodeDeclaration
    inputs: Mapping[str, Link | Constant]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A validated prompt.

    nodes: all submitted nodes, in submitted order (unreachable ones too); targets: the valid output nodes to
    run; prompt: the JSON as it is shown in history and saved in files (after coercion).
    """

    nodes: Mapping[NodeId, PlanNode]
    targets: tuple[NodeId, ...]
    prompt: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome of validating a prompt, in ComfyUI's error shapes.

    questions: what validators elsewhere have to say before this is final; see `validate`.
    plan: None if nothing can run; error: the prompt-level error {type, message, details, extra_info} when plan
    is None; node_errors: by node id, also non-empty when only some outputs are valid.
    """

    plan: Plan | None
    error: Mapping[str, Any] | None = None
    node_errors: Mapping[str, Any] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
