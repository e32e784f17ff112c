"""Draw prompts: graphs that fit by type, made from the declarations of all nodes, and mutations of sound ones.

Sizes and counts are small or at the ends of their ranges; numbers of steps are small, because long walks are
no fault.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comfyserverless.graph.declaration import FileChoices, InputChoices, InputSpec, NodeDeclaration
from comfyserverless.nodes.registry import BUILTIN
from tests.support.fuzz import values
from tests.support.fuzz.inputs import LOOPS, PLAIN, PRIMITIVES, drawn_inputs, kinds_of, own_widget

ROOT = Path(__file__).parents[3]
Graph = dict[str, dict[str, Any]]

_SHOWN = ("PreviewAny", "source")
SINKS = {
    "IMAGE": ("PreviewImage", "images"),
    "LATENT": ("SaveLatent", "samples"),
    **dict.fromkeys(("INT", "FLOAT", "STRING", "BOOLEAN", "*", "COMFY_MATCHTYPE_V3"), _SHOWN),
}
_DEEPEST = 5
_MAX_NODES = 40
#: How often a number or text comes from another node.
_LINKED_WIDGETS = 0.05
#: What takes most of the time.
_RUN_MODELS = frozenset(
    {
        "KSampler",
        "KSamplerAdvanced",
        "SamplerCustom",
        "SamplerCustomAdvanced",
        "VAEDecode",
        "VAEEncode",
        "VAEEncodeForInpaint",
    }
)
_SIZE_WORDS = ("width", "height", "size", "megapixels", "scale_by", "left", "top", "right", "bottom")


def declarations() -> dict[str, NodeDeclaration]:
    """Return all built-in node classes by name, without those of loops."""
    found = {name: BUILTIN.get(name) for name in BUILTIN.names() if name not in LOOPS}
    return {name: each for name, each in found.items() if each is not None}


class GraphMaker:
    """Draw graphs from the declarations.

    files: names by folder key; inputs: by content type (`image`, `latent`). extreme: how often a number is
    taken from the ends of its range. avoids_models: leave out what runs one where there is another way.
    """

    def __init__(
        self,
        files: Mapping[str, list[str]],
        inputs: Mapping[str, list[str]],
        extreme: float = 0.12,
        avoids_models: bool = False,
    ) -> None:
        self.classes = declarations()
        self._avoided = _RUN_MODELS if avoids_models else frozenset()
        self._files, self._inputs, self._extreme = files, inputs, extreme
        self._makers: dict[str, list[tuple[str, int]]] = {}
        for name, declared in self.classes.items():
            for slot, output in enumerate(declared.outputs):
                self._makers.setdefault(str(output.type), []).append((name, slot))
        self._takers: dict[str, list[tuple[str, str]]] = {}
        for name, declared in self.classes.items():
            for spec in declared.inputs:
                if self._is_socket(spec):
                    for kind in kinds_of(spec):
                        self._takers.setdefault(kind, []).append((name, spec.name))
        self._costs = self._leaf_costs()

    def about(self, rng: random.Random, name: str) -> Graph:
        """Draw a graph that runs a node class."""
        graph: Graph = {}
        node = self._add(rng, graph, name, 0)
        self._lead_to_sink(rng, graph, node, name)
        return graph

    def _leaf_costs(self) -> dict[str, int]:
        """Return, per class, how many levels of nodes it needs below it."""
        costs: dict[str, int] = {}
        kinds: dict[str, int] = {}
        for level in range(10):
            for name, declared in self.classes.items():
                needed = [
                    kind
                    for spec in declared.inputs
                    if spec.section == "required" and self._is_socket(spec)
                    for kind in kinds_of(spec)[:1]
                ]
                if name not in costs and all(kinds.get(kind, level) < level for kind in needed):
                    costs[name] = level
            for name, level_of in costs.items():
                for output in self.classes[name].outputs:
                    kinds.setdefault(str(output.type), level_of)
        return costs

    def _add(
        self, rng: random.Random, graph: Graph, name: str, depth: int, given: Mapping[str, Any] | None = None
    ) -> str:
        specs, chosen = drawn_inputs(rng, self.classes[name])
        inputs: dict[str, Any] = {**chosen, **(given or {})}
        for spec in specs:
            if spec.name in inputs or (spec.section == "optional" and rng.random() < 0.4):
                continue
            if self._is_socket(spec):
                kinds = [kind for kind in kinds_of(spec) if kind in self._makers]
                inputs[spec.name] = self._source(rng, graph, rng.choice(kinds), depth + 1)
            else:
                inputs[spec.name] = self._maybe_linked(rng, graph, spec)
        node = str(len(graph) + 1)
        graph[node] = {"class_type": name, "inputs": inputs}
        return node

    def _maybe_linked(self, rng: random.Random, graph: Graph, spec: InputSpec) -> Any:
        """Return a value for a widget, sometimes by way of a node that holds it."""
        value = self._widget(rng, spec)
        holder = PRIMITIVES.get(spec.type) if isinstance(spec.type, str) else None
        if holder is None or rng.random() >= _LINKED_WIDGETS or spec.options.get("max", 0) >= 2**63:
            return value
        node = str(len(graph) + 1)
        graph[node] = {"class_type": holder, "inputs": {"value": value}}
        return [node, 0]

    def _source(self, rng: random.Random, graph: Graph, kind: str, depth: int) -> list[Any]:
        """Return a link to an output of a type, of a node that is there or of a new one."""
        there = [
            [node, slot]
            for node, each in graph.items()
            for slot, output in enumerate(self.classes[each["class_type"]].outputs)
            if output.type == kind
        ]
        if there and (rng.random() < 0.55 or len(graph) > _MAX_NODES):
            return rng.choice(there)
        known = self._makers[kind]
        makers = [(name, slot) for name, slot in known if self._can_make(name)] or known
        if depth >= _DEEPEST or rng.random() < 0.3:
            least = min(self._costs.get(name, 99) for name, _ in makers)
            makers = [(name, slot) for name, slot in makers if self._costs.get(name, 99) == least]
        name, slot = rng.choice(makers)
        return [self._add(rng, graph, name, depth), slot]

    def _lead_to_sink(self, rng: random.Random, graph: Graph, node: str, name: str) -> None:
        """Add nodes after a node until something is saved; several, where it has several outputs."""
        for _ in range(6):
            outputs = self.classes[name].outputs
            if not outputs:
                return
            saved = [(slot, out.type) for slot, out in enumerate(outputs) if out.type in SINKS]
            for slot, kind in saved:
                sink, port = SINKS[kind]
                self._add(rng, graph, sink, 0, {port: [node, slot]})
            if saved:
                return
            slot = rng.randrange(len(outputs))
            takers = self._takers.get(str(outputs[slot].type), ())
            last = [each for each in takers if self._ends_soon(each[0]) and each[0] not in self._avoided]
            if not takers:
                return
            name, port = rng.choice(last or list(takers))
            node = self._add(rng, graph, name, 2, {port: [node, slot]})

    def _can_make(self, name: str) -> bool:
        """Tell whether a class needs no file that is not there."""
        kinds = [spec.type for spec in self.classes[name].inputs]
        folders = [self._files.get(kind.folder) for kind in kinds if isinstance(kind, FileChoices)]
        uploads = [self._inputs.get(kind.content) for kind in kinds if isinstance(kind, InputChoices)]
        return name in self._costs and name not in self._avoided and all([*folders, *uploads])

    def _is_socket(self, spec: InputSpec) -> bool:
        """Tell whether an input is for links: no plain type, and some node gives what it takes."""
        is_plain = not isinstance(spec.type, str) or spec.type in PLAIN
        return not is_plain and any(kind in self._makers for kind in kinds_of(spec))

    def _ends_soon(self, name: str) -> bool:
        return any(output.type in {*SINKS, "CONDITIONING", "GUIDER"} for output in self.classes[name].outputs)

    def _widget(self, rng: random.Random, spec: InputSpec) -> Any:
        kind, options = spec.type, spec.options
        if isinstance(kind, FileChoices):
            names = self._files.get(kind.folder) or [""]
            usual = [name for name in names if name.startswith("sd15")]
            return rng.choice(usual if usual and rng.random() < 0.8 else names)
        if isinstance(kind, InputChoices):
            return rng.choice(self._inputs.get(kind.content) or [""])
        if isinstance(kind, tuple):
            return rng.choice(kind)
        if kind == "BOOLEAN":
            return rng.random() < 0.5
        if kind == "STRING":
            return self._text(rng, spec)
        if kind == "COMBO":
            return rng.choice(options.get("options") or ["x"])
        if kind not in ("INT", "FLOAT"):
            return own_widget(rng, kind)
        return self._number(rng, spec, kind, options)

    def _text(self, rng: random.Random, spec: InputSpec) -> str:
        if spec.name == "sigmas":
            return rng.choice(("", "1, 0.5", "0, 0", "14 7 3 0", "1 2 3", "-1 0", "nan", "1e9 0", "5", "0 5 0"))
        if spec.name == "filename_prefix":
            return rng.choice(("fuzz", "a/b/c", "%width%x%height%", "", "../x", "a" * 300))
        return values.text(rng)

    def _number(self, rng: random.Random, spec: InputSpec, kind: Any, options: Mapping[str, Any]) -> Any:
        low, high = options.get("min", 0), options.get("max", 1)
        if spec.name in ("steps", "end_at_step", "start_at_step"):
            drawn: Any = rng.choice((low, 1, 2, 3, 5, 12))
            return min(high, max(low, drawn))
        if rng.random() < self._extreme:
            return rng.choice((low, high))
        if "batch" in spec.name or "amount" in spec.name:
            return min(high, max(low, rng.choice((1, 1, 2, 3))))
        if any(word in spec.name for word in _SIZE_WORDS) and kind == "INT":
            drawn = rng.choice((low, 1, 8, 16, 17, 24, 64, 72, 100))
            return min(high, max(low, drawn))
        if kind == "INT":
            return rng.choice((low, min(high, low + rng.randrange(10)), rng.randint(low, min(high, low + 200))))
        return rng.choice((float(low), options.get("default", low), rng.uniform(low, min(high, low + 4))))


def sound_graphs() -> list[Graph]:
    """Return the sample graphs and those of the recorded cases."""
    paths = [path for path in (ROOT / "graphs").glob("*.json") if not path.name.endswith(".expect.json")]
    paths += (ROOT / "tests" / "parity" / "cases").glob("*/workflow.json")
    return [json.loads(path.read_text()) for path in sorted(paths)]


def break_graph(rng: random.Random, graph: Graph) -> Any:
    """Return a copy of a graph with a few things changed that a careless program could get wrong."""
    broken: Any = json.loads(json.dumps(graph))
    for _ in range(rng.randrange(1, 4)):
        broken = rng.choice(_BREAKS)(rng, broken)
        if not _is_graph(broken):
            break
    return broken


def _is_graph(graph: Any) -> bool:
    return (
        isinstance(graph, dict)
        and bool(graph)
        and all(isinstance(node, dict) and isinstance(node.get("inputs"), dict) for node in graph.values())
    )


def _break_link(rng: random.Random, graph: Any) -> Any:
    inputs = graph[rng.choice(list(graph))]["inputs"]
    if inputs:
        source = rng.choice((rng.choice(list(graph)), "no such", 1, None))
        inputs[rng.choice(list(inputs))] = [source, rng.choice((0, 1, 2, -1, 99, "0", 0.5, None, True))]
    return graph


def _swap_class(rng: random.Random, graph: Any) -> Any:
    names = [*BUILTIN.names(), "NoSuchNode", "", 5, None]
    graph[rng.choice(list(graph))]["class_type"] = rng.choice(names)
    return graph


def _swap_nodes(rng: random.Random, graph: Any) -> Any:
    first, second = rng.choice(list(graph)), rng.choice(list(graph))
    graph[first], graph[second] = graph[second], graph[first]
    return graph


def _change_value(rng: random.Random, graph: Any) -> Any:
    inputs = graph[rng.choice(list(graph))]["inputs"]
    if inputs:
        name = rng.choice(list(inputs))
        if name not in ("steps", "batch_size"):
            inputs[name] = values.value(rng)
    return graph


def _change_number(rng: random.Random, graph: Any) -> Any:
    """Change a number to one that its range allows."""
    node = graph[rng.choice(list(graph))]
    declared = BUILTIN.get(node["class_type"]) if isinstance(node.get("class_type"), str) else None
    for spec in declared.inputs if declared else ():
        if spec.type in ("INT", "FLOAT") and spec.name not in ("steps", "batch_size") and rng.random() < 0.5:
            node["inputs"][spec.name] = rng.choice((spec.options.get("min"), spec.options.get("max")))
    return graph


def _drop_input(rng: random.Random, graph: Any) -> Any:
    inputs = graph[rng.choice(list(graph))]["inputs"]
    if inputs:
        del inputs[rng.choice(list(inputs))]
    return graph


def _relink(rng: random.Random, graph: Any) -> Any:
    """Move a link to another node, which may make a cycle."""
    links = [
        (node, name)
        for node, each in graph.items()
        for name, value in each["inputs"].items()
        if isinstance(value, list) and len(value) == 2
    ]
    if links:
        node, name = rng.choice(links)
        graph[node]["inputs"][name] = [rng.choice(list(graph)), rng.randrange(2)]
    return graph


def _mutate(rng: random.Random, graph: Any) -> Any:
    return values.mutate(rng, graph)


_BREAKS = (
    _break_link,
    _swap_class,
    _swap_nodes,
    _change_value,
    _change_number,
    _drop_input,
    _relink,
    _relink,
    _mutate,
)
