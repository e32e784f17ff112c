"""Read a prompt once: check it as ComfyUI does, and turn it into a plan.

Any JSON gives a Validation, never an exception, and the caller's object stays as it was. A prompt runs if
at least one output node is valid; errors of the others are still told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from comfyserverless.core.ids import NodeId
from comfyserverless.graph import problems
from comfyserverless.graph.declaration import Declarations, FileCatalog, NodeDeclaration, declared_for
from comfyserverless.graph.jsonsafe import json_kind
from comfyserverless.graph.plan import Constant, Link, Plan, PlanNode, Validation
from comfyserverless.graph.problems import Problem
from comfyserverless.graph.questions import Answers
from comfyserverless.graph.walk import Verdict, Walker, is_slot
from comfyserverless.graph.workflows.kinds import is_saved_workflow

#: How many (node, dependent output) pairs an answer holds at most; real prompts have a handful.
_MAX_DEPENDENTS = 20_000


def validate(
    prompt: Any,
    declarations: Declarations,
    catalog: FileCatalog,
    targets: Sequence[str] | None = None,
    *,
    overrides: Mapping[str, NodeDeclaration] | None = None,
    answers: Answers | None = None,
) -> Validation:
    """Validate an API-format prompt: any JSON value.

    targets: ids of the output nodes to run, None for all (`partial_execution_targets`; empty means none).
    overrides: declarations of single nodes by id, in the place of what `declarations` has for their class.
    answers: of validators elsewhere (see `questions`). Returns a Validation whose errors have ComfyUI's shapes
    and types; see `graph.problems`. If it has questions, call this again with the answers to all of them: the
    second Validation has none.
    """
    if not isinstance(prompt, dict):
        return Validation(None, _not_a_prompt(prompt))
    if is_saved_workflow(prompt):
        return Validation(None, problems.saved_workflow())
    reading = _Reading(declarations, overrides or {}, answers or {})
    for node_id, node in prompt.items():
        refusal = reading.classify(node_id, node)
        if refusal is not None:
            return Validation(None, refusal)
    wanted = None if targets is None else {target for target in targets if isinstance(target, str)}
    outputs = [
        node_id
        for node_id, declaration in reading.classes.items()
        if declaration.output_node and (wanted is None or node_id in wanted)
    ]
    if not outputs:
        return Validation(None, _no_outputs())
    return _validate_outputs(_copy(prompt), reading, catalog, outputs)


def _validate_outputs(
    prompt: dict[str, Any], reading: _Reading, catalog: FileCatalog, outputs: list[str]
) -> Validation:
    classes = reading.classes
    walker = Walker(prompt, classes, catalog, reading.answers, reading.misnamed)
    valid: list[NodeId] = []
    dependents = _Dependents()
    for output in outputs:
        if walker.judge(output) is Verdict.VALID:
            valid.append(NodeId(output))
            continue
        dependents.add(output, walker.problems)
    node_errors = {
        node_id: {
            "errors": found,
            "dependent_outputs": dependents.outputs[node_id],
            "class_type": classes[node_id].name,
        }
        for node_id, found in walker.problems.items()
    }
    if not valid:
        message = "No output of the prompt can run"
        error = problems.problem("prompt_outputs_failed_validation", message, problems.summary(node_errors))
        return Validation(None, error, node_errors, tuple(walker.questions))
    nodes = {NodeId(key): _plan_node(key, prompt, classes, walker.literals) for key in prompt}
    return Validation(Plan(nodes, tuple(valid), prompt), None, node_errors, tuple(walker.questions))


class _Reading:
    """What is known beside the prompt, and the declaration of each of its nodes.

    misnamed: what is wrong with the names of inputs that depend on what was submitted, by node id.
    """

    def __init__(
        self, declarations: Declarations, overrides: Mapping[str, NodeDeclaration], answers: Answers
    ) -> None:
        self.answers = answers
        self.classes: dict[str, NodeDeclaration] = {}
        self.misnamed: dict[str, str] = {}
        self._declarations = declarations
        self._overrides = overrides

    def classify(self, node_id: Any, node: Any) -> Problem | None:
        """Look up the class of a node, or say why it has none."""
        if not isinstance(node_id, str):
            return problems.problem("invalid_prompt", "Node ids must be texts", f"Node ID {node_id!r}")
        class_type = node.get("class_type") if isinstance(node, dict) else None
        found = self._declarations.get(class_type) if isinstance(class_type, str) else None
        declaration = self._overrides.get(node_id, found)
        if declaration is None:
            return problems.missing_node_type(node_id, class_type, _title(node), self._declarations.names())
        self.classes[node_id] = self._for_node(declaration, node_id, node)
        return None

    def _for_node(self, declaration: NodeDeclaration, node_id: str, node: Any) -> NodeDeclaration:
        submitted = node.get("inputs") if isinstance(node, dict) else None
        try:
            return declared_for(declaration, submitted if isinstance(submitted, dict) else {})
        except ValueError as exc:
            self.misnamed[node_id] = str(exc)
            return declaration


class _Dependents:
    """Name failing outputs at nodes with problems: as in ComfyUI at all found so far, not only their own."""

    def __init__(self) -> None:
        #: By node id, in the order in which the problems were found.
        self.outputs: dict[str, list[str]] = {}
        self._budget = _MAX_DEPENDENTS

    def add(self, output: str, nodes: Mapping[str, Any]) -> None:
        """Name an output at all of `nodes`, a dict that only grows; beyond the budget only at new ones."""
        new = list(islice(nodes, len(self.outputs), None))
        self.outputs.update({node_id: [] for node_id in new})
        for node_id in self.outputs if self._budget > 0 else new:
            self.outputs[node_id].append(output)
        self._budget -= len(self.outputs)


def _title(node: Any) -> str:
    meta = node.get("_meta") if isinstance(node, dict) else None
    title = meta.get("title") if isinstance(meta, dict) else None
    return title if isinstance(title, str) else ""


def _copy(prompt: dict[str, Any]) -> dict[str, Any]:
    """Copy the levels that validation writes to; deeper values are shared and never changed."""
    copied = {}
    for node_id, node in prompt.items():
        inputs = node.get("inputs")
        copied[node_id] = {**node, "inputs": dict(inputs)} if isinstance(inputs, dict) else dict(node)
    return copied


def _plan_node(
    node_id: str,
    prompt: Mapping[str, Any],
    classes: Mapping[str, NodeDeclaration],
    literals: set[tuple[str, str]],
) -> PlanNode:
    declaration = classes[node_id]
    declared = {spec.name for spec in declaration.inputs}
    given = prompt[node_id].get("inputs")
    inputs: dict[str, Link | Constant] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        link = None if (node_id, name) in literals else _as_link(value)
        if link is None:
            inputs[name] = Constant(value)
        elif name in declared or declaration.takes_undeclared_links:  # else nobody takes what it would wait for
            inputs[name] = link
    return PlanNode(NodeId(node_id), declaration, inputs, _title(prompt[node_id]))


def _as_link(value: Any) -> Link | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    source, slot = value
    return Link(NodeId(source), int(slot)) if isinstance(source, str) and is_slot(slot) else None


def _not_a_prompt(prompt: Any) -> Problem:
    if prompt == []:  # ComfyUI reads an empty list like an empty object
        return _no_outputs()
    details = f"got {json_kind(prompt)}"
    return problems.problem("invalid_prompt", "The prompt must be an object of nodes by id", details)


def _no_outputs() -> Problem:
    return problems.problem("prompt_no_outputs", "The prompt has no output node to run")
