"""Prompts of any shape give what a plain recursive reading of the rules gives, and leave nothing behind."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.control.views import RunStatus
from comfyserverless.core.values import Value
from comfyserverless.graph.lowering import Blocked, Items, LoweringContext, NodeResult
from comfyserverless.graph.plan import Link
from tests.support.execution import Bench, any_input, link, node_id, node_of
from tests.support.graph_prompts import Prompt, node

NOTHING = Blocked()


def _odd(n: int) -> NodeResult:
    return NodeResult((Items(tuple(NOTHING if index % 2 else index for index in range(n))),))


def _grow(me: str, n: Any) -> NodeResult:
    """Become an addition, if the number is even."""
    if n % 2:
        return NodeResult((n,))
    name = f"{me}+{n}"
    return NodeResult((Link(node_id(name), 0),), None, {name: node("Add", a=n, b=1)})


async def _ask(context: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> Sequence[str]:
    return ["on" if call["n"] else "off" for call in calls]


async def _later(n: Any) -> Any:
    await asyncio.sleep(0)
    return n


def grow_class(name: str) -> Any:
    """Return a class whose nodes have ids of their own below; equal ones share their results anyway."""
    count = iter(range(10_000))
    return node_of(name, lambda n: _grow(f"{name}{next(count)}", n), "n")


CLASSES = (
    node_of("Many", lambda n: NodeResult((Items(tuple(range(n))),)), "n", outputs="*[]"),
    node_of("Odd", _odd, "n", outputs="*[]"),
    node_of("Add", lambda a, b: a + b, "a", "b"),
    node_of("Whole", lambda n: len(n), "n", input_is_list=True),
    node_of("Later", _later, "n", is_async=True),
    node_of(
        "Switch",
        lambda n, on, off: on if n else off,
        "n",
        any_input("on", lazy=True),
        any_input("off", lazy=True),
        check_lazy=_ask,
    ),
)
_LINKS = {"Add": ("a", "b"), "Whole": ("n",), "Later": ("n",), "Switch": ("n", "on", "off"), "Grow": ("n",)}


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Return an acyclic prompt in which every node can be shown."""
    prompt: Prompt = {}
    for index in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["Many", "Odd", *_LINKS])) if index else "Many"
        if kind in _LINKS:
            sources = {name: link(str(draw(st.integers(0, index - 1)))) for name in _LINKS[kind]}
            prompt[str(index)] = node(kind, **sources)
        else:
            prompt[str(index)] = node(kind, n=draw(st.integers(0 if draw(st.booleans()) else 1, 3)))
    for index in draw(st.lists(st.integers(0, len(prompt) - 1), min_size=1, max_size=3, unique=True)):
        prompt[f"s{index}"] = node("Show", value=link(str(index)))
    return {key: prompt[key] for key in draw(st.permutations(sorted(prompt)))}


class Reading:
    """Say what a prompt gives, by the rules. Raises IndexError where a list has nothing to repeat."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._known: dict[str, list[Any]] = {}

    def values(self, name: str) -> list[Any]:
        """Return the values of a node's output."""
        if name not in self._known:
            self._known[name] = self._read(self._prompt[name])
        return self._known[name]

    def _read(self, entry: dict[str, Any]) -> list[Any]:
        kind, inputs = entry["class_type"], entry["inputs"]
        if kind in ("Many", "Odd"):
            return [NOTHING if kind == "Odd" and index % 2 else index for index in range(inputs["n"])]
        if kind == "Switch":
            return self._switch(inputs)
        lists = {name: self.values(source[0]) for name, source in inputs.items()}
        if kind == "Whole":
            return [NOTHING if NOTHING in lists["n"] else len(lists["n"])]
        call = {"Add": _plus, "Later": lambda n: n, "Grow": lambda n: n if n % 2 else n + 1}[kind]
        return [NOTHING if NOTHING in each.values() else call(**each) for each in calls(lists, kind)]

    def _switch(self, inputs: dict[str, Any]) -> list[Any]:
        lists: dict[str, list[Any]] = {"n": self.values(inputs["n"][0]), "on": [None], "off": [None]}
        for each in calls(lists, "Switch"):
            if each["n"] != NOTHING:
                wanted = "on" if each["n"] else "off"
                lists[wanted] = self.values(inputs[wanted][0])
        chosen = calls(lists, "Switch")
        return [
            NOTHING if NOTHING in each.values() else each["on"] if each["n"] else each["off"] for each in chosen
        ]


def _plus(a: int, b: int) -> int:
    return a + b


def calls(lists: dict[str, list[Any]], kind: str) -> list[dict[str, Any]]:
    """Return the arguments of each call."""
    count = max(map(len, lists.values()))
    if count == 0:
        raise TypeError(f"{kind} is called without arguments")
    return [
        {name: values[index] if index < len(values) else values[-1] for name, values in lists.items()}
        for index in range(count)
    ]


async def check(prompt: Prompt, mode: str) -> None:
    """Run a prompt and compare."""
    reading, expected, error = Reading(prompt), {}, ""
    for name in (each for each in prompt if each.startswith("s")):
        try:
            values = reading.values(name.removeprefix("s"))
            expected[name] = [repr(value) for value in values if value != NOTHING] or None
            if not values:  # it is called without arguments
                expected[name] = ["None"]
        except (IndexError, TypeError) as exc:
            error = type(exc).__name__
    bench = Bench((*CLASSES, grow_class("Grow")), Path(tempfile.gettempdir()), mode)
    ran = await bench.run(prompt)
    if error:
        assert ran.record.status is RunStatus.ERROR
        assert ran.error.exception_type in ("IndexError", "TypeError")
    else:
        assert ran.record.status is RunStatus.SUCCESS, ran.error
        shown = {name: ran.record.outputs.get(node_id(name), {}).get("text") for name in expected}
        assert shown == expected
    if mode == "classic" and not error:
        assert (await bench.run(prompt)).started == []
    bench.forget_results()
    assert bench.dispatcher.counts()["results"] == 0
    assert len(asyncio.all_tasks()) == 1


@settings(max_examples=150, deadline=None)
@given(prompts(), st.sampled_from(["classic", "none"]))
def test_any_prompt_gives_what_the_rules_say(prompt: Prompt, mode: str) -> None:
    asyncio.run(check(prompt, mode))
