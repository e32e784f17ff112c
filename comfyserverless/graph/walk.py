"""Validate nodes from an output back through its links, each node once, without recursion.

A node's validation is a generator that yields the ids of the sources it needs judged; a loop keeps the
stack. So a chain of any length is fine, and a cycle is a source that is still on the stack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from comfyserverless.core.ids import NodeId
from comfyserverless.graph import problems
from comfyserverless.graph.choices import Choices
from comfyserverless.graph.compatibility import is_compatible
from comfyserverless.graph.declaration import FileCatalog, InputSpec, NodeDeclaration, OutputSpec, RemoteCheck
from comfyserverless.graph.jsonsafe import brief, json_kind
from comfyserverless.graph.literals import check_literal
from comfyserverless.graph.problems import NodeAborted, Problem
from comfyserverless.graph.questions import Answers, Question

#: How many nodes of a cycle are named, so that a huge cycle does not give a huge answer.
_MAX_NAMED_IN_CYCLE = 32


class Verdict(Enum):
    """What became of a node: good, bad (itself or something before it)."""

    VALID = "valid"
    INVALID = "invalid"


Answer = Verdict | NodeAborted
_Walk = Generator[str, Answer, Verdict]


class Walker:
    """Judge nodes of one prompt; coerced literals are written into `prompt`, which must be a private copy.

    problems: by node id, in the order of judgement, only nodes with problems of their own.
    literals: (node id, input name) of unwrapped values that would otherwise read as links. questions: about
    nodes whose validators are elsewhere and have no entry in `answers`; such nodes count as good.
    """

    def __init__(
        self,
        prompt: dict[str, dict[str, Any]],
        classes: Mapping[str, NodeDeclaration],
        catalog: FileCatalog,
        answers: Answers,
        misnamed: Mapping[str, str],
    ) -> None:
        self.questions: list[Question] = []
        self._answers = answers
        self._misnamed = misnamed
        self.problems: dict[str, list[Problem]] = {}
        self.literals: set[tuple[str, str]] = set()
        self._prompt = prompt
        self._classes = classes
        self._catalog = catalog
        self._choices = Choices(catalog)
        #: Nodes whose judgement is final.
        self._verdicts: dict[str, Verdict] = {}
        #: Nodes under judgement, outermost first, and the position of each.
        self._path: list[str] = []
        self._position: dict[str, int] = {}
        #: Nodes that already report a cycle.
        self._cyclic: set[str] = set()

    def judge(self, output: str) -> Verdict:
        """Validate an output node and all that it needs; problems are added to `problems`."""
        if output in self._verdicts:
            return self._verdicts[output]
        answer = self._run(output)
        if isinstance(answer, NodeAborted):
            self._settle(output, [problems.aborted_output(answer)])
            return Verdict.INVALID
        return answer

    def _run(self, root: str) -> Answer:
        frames = [self._enter(root)]
        answer: Answer | None = None
        while frames:
            try:
                source = frames[-1].send(answer) if answer is not None else next(frames[-1])
            except StopIteration as stop:
                answer = stop.value
            except NodeAborted as exc:
                answer = exc
            else:
                answer = self._known(source)
                if answer is None:
                    frames.append(self._enter(source))
                continue
            frames.pop()
            node_id = self._path.pop()
            del self._position[node_id]
            if isinstance(answer, Verdict):
                self._verdicts[node_id] = answer
        assert answer is not None
        return answer

    def _enter(self, node_id: str) -> _Walk:
        self._position[node_id] = len(self._path)
        self._path.append(node_id)
        return self._check_node(node_id)

    def _known(self, source: str) -> Answer | None:
        if source in self._position:
            self._report_cycle(source)
            return Verdict.INVALID
        return self._verdicts.get(source)

    def _settle(self, node_id: str, found: list[Problem]) -> None:
        """Close a node whose validation could not be finished."""
        self.problems.setdefault(node_id, []).extend(found)
        self._verdicts[node_id] = Verdict.INVALID

    def _report_cycle(self, start: str) -> None:
        closing = self._path[-1]
        if closing in self._cyclic:
            return
        first = self._position[start]
        cycle = self._path[first : first + _MAX_NAMED_IN_CYCLE]
        if cycle[-1] != closing:
            cycle = self._path[first : first + _MAX_NAMED_IN_CYCLE - 1] + [closing]  # noqa: RUF005
        for node_id in cycle:
            if node_id not in self._cyclic:
                self._cyclic.add(node_id)
                self.problems.setdefault(node_id, []).append(problems.dependency_cycle(node_id, cycle))

    def _check_node(self, node_id: str) -> _Walk:
        declaration = self._classes[node_id]
        inputs = self._inputs_of(node_id)
        found: list[Problem] = []
        if node_id in self._misnamed:
            found.append(problems.invalid_dynamic_input(self._misnamed[node_id]))
        is_fed = True
        for spec in declaration.inputs:
            if spec.name not in inputs:
                if spec.section == "required":
                    found.append(problems.required_input_missing(spec.name))
            elif isinstance(inputs[spec.name], list):
                verdict = yield from self._check_link(node_id, spec, inputs[spec.name], found)
                is_fed = is_fed and verdict is Verdict.VALID
            else:
                self._check_given(node_id, spec, inputs, found)
        found.extend(self._ask_node(node_id, declaration, inputs))
        if found:
            self.problems.setdefault(node_id, []).extend(found)
        is_valid = is_fed and not found and node_id not in self._cyclic
        return Verdict.VALID if is_valid else Verdict.INVALID

    def _inputs_of(self, node_id: str) -> dict[str, Any]:
        node = self._prompt[node_id]
        if "inputs" not in node:
            raise NodeAborted("KeyError", "'inputs' is missing", self._where(node_id))
        inputs = node["inputs"]
        if not isinstance(inputs, dict):
            message = f"'inputs' must be an object, not {json_kind(inputs)}"
            raise NodeAborted("TypeError", message, self._where(node_id))
        return inputs

    def _check_given(self, node_id: str, spec: InputSpec, inputs: dict[str, Any], found: list[Problem]) -> None:
        declaration = self._classes[node_id]
        remote = declaration.remote_check
        checked_by_node = spec.name in declaration.checked_inputs or (
            remote is not None and remote.covers(spec.name)
        )
        value, problem = check_literal(
            spec, inputs[spec.name], self._choices, is_checked_by_node=checked_by_node
        )
        inputs[spec.name] = value
        if isinstance(value, list):
            self.literals.add((node_id, spec.name))
        if problem is not None:
            found.append(problem)

    def _check_link(self, node_id: str, spec: InputSpec, link: list[Any], found: list[Problem]) -> _Walk:
        if len(link) != 2:
            found.append(problems.bad_linked_input(spec.name, self._choices.config(spec), link))
            return Verdict.INVALID
        source, slot = link
        output = self._output(node_id, spec.name, source, slot)
        if not self._fits(node_id, output, spec):
            config = self._choices.config(spec)
            found.append(problems.return_type_mismatch(spec.name, config, output.type, link))
            return Verdict.INVALID
        answer = yield source
        if isinstance(answer, NodeAborted):
            config = self._choices.config(spec)
            self._settle(source, [problems.aborted_source(spec.name, config, link, answer)])
            return Verdict.INVALID
        return answer

    def _fits(self, node_id: str, output: OutputSpec, spec: InputSpec) -> bool:
        remote = self._classes[node_id].remote_check
        if (remote is not None and remote.takes_types) or output.matches_any or spec.matches_any:
            return True
        if isinstance(output.type, tuple):
            choices = self._choices.of(spec)
            return is_compatible(
                list(output.type), spec.type if isinstance(spec.type, str) else list(choices or ())
            )
        return is_compatible(output.type, spec.type)

    def _output(self, node_id: str, name: str, source: Any, slot: Any) -> OutputSpec:
        where = f"{self._where(node_id)}, input {name}"
        if not isinstance(source, str) or source not in self._classes:
            raise NodeAborted(
                "KeyError", f"{name} is linked to node {brief(source)}, which does not exist", where
            )
        outputs = self._classes[source].outputs
        if not is_slot(slot):
            raise NodeAborted(
                "TypeError", f"{name} is linked to slot {brief(slot)}, which is no whole number", where
            )
        if not 0 <= slot < len(outputs):
            message = f"{name} is linked to slot {slot} of node {source}, which has {len(outputs)} outputs"
            raise NodeAborted("IndexError", message, where)
        return outputs[int(slot)]

    def _ask_node(self, node_id: str, declaration: NodeDeclaration, inputs: dict[str, Any]) -> list[Problem]:
        """Ask for the node's own check (VALIDATE_INPUTS) of declared inputs; linked ones are None."""
        if declaration.check_inputs is None and declaration.remote_check is None:
            return []
        names = [spec.name for spec in declaration.inputs if spec.name in inputs]
        values = {name: None if self._is_link(node_id, name, inputs[name]) else inputs[name] for name in names}
        if declaration.remote_check is not None:
            return self._answer(node_id, declaration.remote_check, values)
        assert declaration.check_inputs is not None
        try:
            refused = declaration.check_inputs(self._catalog, values)
        except Exception as exc:  # the check may be a pack's code
            raise NodeAborted(type(exc).__name__, str(exc), self._where(node_id)) from exc
        return list(_refusals(refused.items(), names))

    def _answer(self, node_id: str, check: RemoteCheck, values: dict[str, Any]) -> list[Problem]:
        """Return what a check elsewhere has said, or ask."""
        answer = self._answers.get(node_id)
        if answer is not None:
            for _, text, *raised in answer:
                if raised:
                    raise NodeAborted(raised[0], text, self._where(node_id))
            given = [name for name in values if check.covers(name)]
            return list(_refusals(answer, [*given, *(["input_types"] if check.takes_types else [])]))
        types = {name: self._source_type(node_id, name) for name, value in values.items() if value is None}
        linked = {name: kind for name, kind in types.items() if kind is not None}
        self.questions.append(Question(NodeId(node_id), self._classes[node_id].name, values, linked))
        return []

    def _source_type(self, node_id: str, name: str) -> Any:
        """Return the type of what feeds an input, None if it is no link that leads anywhere."""
        match self._prompt[node_id]["inputs"][name]:
            case [str(source), slot] if self._is_link(node_id, name, []) and source in self._classes:
                outputs = self._classes[source].outputs
                return outputs[int(slot)].type if is_slot(slot) and 0 <= slot < len(outputs) else None
        return None

    def _is_link(self, node_id: str, name: str, value: Any) -> bool:
        return isinstance(value, list) and (node_id, name) not in self.literals

    def _where(self, node_id: str) -> str:
        return f"node {node_id} ({self._classes[node_id].name})"


def _refusals(refused: Iterable[Sequence[str]], given: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems that a node's own check has found; a text for "" is repeated for each given input."""
    for name, text in refused:
        for each in (name,) if name else given:
            yield problems.custom_validation_failed(each, text)


def is_slot(slot: Any) -> bool:
    """Tell whether a value can name an output slot: a whole number, also written as 1.0."""
    is_number = isinstance(slot, int | float) and not isinstance(slot, bool)
    return is_number and slot == slot and slot not in (float("inf"), float("-inf")) and slot == int(slot)
