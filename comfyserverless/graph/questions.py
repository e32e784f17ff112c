"""Ask about nodes whose code lives in another process, so that reading a prompt stays pure and synchronous.

Validation is done in two phases: `validate` collects the questions that it could not answer (VALIDATE_INPUTS),
somebody asks them, and calls `validate` again with the answers. Nothing is asked twice: one repetition is
enough. Change tokens (IS_CHANGED) are asked for with `token_questions`, and handed to `signatures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyserverless.core.ids import NodeId
from comfyserverless.graph.plan import Constant, Link, PlanNode

Answers = Mapping[str, Sequence[Sequence[str]]]
"""What validators said: node id -> pairs of input name and problem text, empty if nothing is wrong.

The name "" stands for every input that the validator was given. A third text is the type of what the validator
has raised instead of an answer.
"""

Tokens = Mapping[NodeId, Any]
"""Change tokens by node id: anything that has an equal next time; NaN is never cached."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which node is asked about, and what it was given.

    inputs: its declared inputs that were given, in declared order: the literal, None for a link. input_types:
    of the linked ones, the declared type of the output that feeds them.
    """

    node: NodeId
    class_type: str
    inputs: Mapping[str, Any]
    input_types: Mapping[str, Any]


def token_questions(nodes: Iterable[PlanNode], prompt: Mapping[str, Any]) -> list[Question]:
    """Return whose change tokens have to be asked for, of nodes of a plan; prompt: as submitted.

    A node that was submitted with a key `is_changed` has its token already.
    """
    return [_token_question(node) for node in nodes if _needs_token(node, prompt.get(node.id))]


def _needs_token(node: PlanNode, submitted: Any) -> bool:
    return node.declaration.has_remote_token and not (
        isinstance(submitted, Mapping) and "is_changed" in submitted
    )


def _token_question(node: PlanNode) -> Question:
    return Question(node.id, node.declaration.name, constants_of(node), {})


def constants_of(node: PlanNode) -> dict[str, Any]:
    """Return the declared inputs that were given: the literal, None for a link."""
    names = [spec.name for spec in node.declaration.inputs if spec.name in node.inputs]
    return {name: _constant(node.inputs[name]) for name in names}


def _constant(value: Link | Constant) -> Any:
    return value.value if isinstance(value, Constant) else None
