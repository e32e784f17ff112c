"""A prompt that is written down as the page writes workflows converts back to itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.graph.workflows.conversion import convert

#: Class -> widgets (name, type) and sockets, as its inputs.
WIDGETS = {"Make": [("seed", "INT"), ("text", "STRING")], "Mix": [("ratio", "FLOAT"), ("is_on", "BOOLEAN")]}
SOCKETS = {"Make": [], "Mix": ["one", "two"]}
INFO = {
    kind: {
        "input": {
            "required": {name: [typed, {}] for name, typed in WIDGETS[kind]},
            "optional": {name: ["IMAGE", {}] for name in SOCKETS[kind]},
        },
        "output": ["IMAGE"],
    }
    for kind in WIDGETS
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(0, 2**64 - 1),
    "STRING": st.text(max_size=5),
    "FLOAT": st.integers(-8, 8).map(lambda value: value / 2 + 0.25),
    "BOOLEAN": st.booleans(),
}


@st.composite
def prompts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an acyclic prompt; any widget may be fed by a link instead of its value."""
    prompt: dict[str, Any] = {}
    for number in range(1, draw(st.integers(1, 6)) + 1):
        kind = draw(st.sampled_from(sorted(WIDGETS)))
        inputs: dict[str, Any] = {}
        for name, typed in WIDGETS[kind]:
            is_linked = prompt and draw(st.booleans())
            inputs[name] = link(draw, prompt) if is_linked else draw(VALUES[typed])
        for name in SOCKETS[kind]:
            if prompt and draw(st.booleans()):
                inputs[name] = link(draw, prompt)
        prompt[str(number)] = {"inputs": inputs, "class_type": kind, "_meta": {"title": kind}}
    return prompt


def link(draw: st.DrawFn, prompt: dict[str, Any]) -> list[Any]:
    """Draw a link to an earlier node."""
    return [draw(st.sampled_from(sorted(prompt))), 0]


class Writer:
    """Writes a prompt as a workflow; detour tells whether a link goes through a reroute."""

    def __init__(self, detour: Callable[[], bool]) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.links: list[list[Any]] = []
        self._detour = detour

    def document(self, prompt: dict[str, Any]) -> dict[str, Any]:
        """Return the workflow."""
        for node_id, node in prompt.items():
            self.nodes.append(self._node(int(node_id), node))
        return {"version": 0.4, "last_node_id": 999, "nodes": self.nodes, "links": self.links}

    def _node(self, node_id: int, node: dict[str, Any]) -> dict[str, Any]:
        kind, inputs, values = node["class_type"], [], []
        for name, typed in WIDGETS[kind]:
            given = node["inputs"][name]
            if isinstance(given, list):
                slot = {"name": name, "type": typed, "widget": {"name": name}}
                inputs.append(slot | {"link": self._link(given, node_id, len(inputs))})
                given = {"INT": 0, "STRING": "", "FLOAT": 0.5, "BOOLEAN": False}[typed]
            values += [given, "randomize"] if name == "seed" else [given]
        for name in SOCKETS[kind]:
            given = node["inputs"].get(name)
            number = None if given is None else self._link(given, node_id, len(inputs))
            inputs.append({"name": name, "type": "IMAGE", "link": number})
        outputs = [{"name": "IMAGE", "type": "IMAGE"}]
        return {"id": node_id, "type": kind, "inputs": inputs, "outputs": outputs, "widgets_values": values}

    def _link(self, origin: list[Any], target: int, slot: int) -> int:
        source = int(origin[0])
        if self._detour():
            passing = 1000 + len(self.nodes) + len(self.links)
            first = self._add(source, passing, 0)
            socket = {"name": "", "type": "*", "link": first}
            self.nodes.append({"id": passing, "type": "Reroute", "inputs": [socket], "outputs": []})
            source = passing
        return self._add(source, target, slot)

    def _add(self, source: int, target: int, slot: int) -> int:
        self.links.append([len(self.links) + 1, source, 0, target, slot, "IMAGE"])
        return len(self.links)


@given(prompts(), st.randoms(use_true_random=False))
def test_prompt_written_as_a_workflow_converts_back(prompt: dict[str, Any], random: Any) -> None:
    found = convert(Writer(lambda: random.random() < 0.3).document(prompt), INFO)
    assert found.prompt == prompt
    assert list(found.prompt) == list(prompt)
