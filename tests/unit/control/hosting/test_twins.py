"""Send built-in nodes to the node host only if they get an object of a pack."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from comfyserverless.control.hosting.builtin_info import BuiltinInfo
from comfyserverless.control.hosting.twins import TWINS, Twins, names_foreign
from comfyserverless.core.hosting import Catalog
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import Output
from comfyserverless.graph.lowering import NodeResult
from comfyserverless.nodes.registry import BUILTIN


class Scopes:
    """Let everybody ask."""

    def opened(self, invocation: Any, context: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def places(self, context: Any) -> dict[str, str]:
        return {}

    async def answer_of(self, answers: Any) -> Any:
        return await answers


class Context:
    """A lowering context that notes what is emitted, and answers for the node host."""

    class hidden:
        """What packs are told."""

        unique_id, prompt_id, tenant, client_id = "7", "p", "default", None
        prompt: dict[str, Any] = {}  # noqa: RUF012
        extra_pnginfo, extra_data, run = None, {}, "p#0"
        lineage = None

    preview_method = "none"

    def __init__(self) -> None:
        self.emitted: list[tuple[str, Any]] = []

    def emit(self, function: str, **inputs: Any) -> Any:
        from comfyserverless.graph.lowering import Emitted

        self.emitted.append((function, inputs))
        return Emitted(InvocationId("i"))

    async def result(self, output: Any) -> Any:
        return [{"result": [{"samples": 1}, {"samples": 2}], "ui": None, "expand": None, "blocked": None}]


NODES = {
    "7": {"class_type": "SamplerCustomAdvanced", "inputs": {}},
    "8": {"class_type": "KSampler", "inputs": {}},
    "9": "no node",
}


def test_node_with_an_object_is_one_call_in_the_node_host() -> None:
    declaration = Twins.of(Scopes(), None).declare(NODES)["7"]
    context: Any = Context()
    inputs = {"sampler": Output(InvocationId("x"), "answers", (0,)), "noise": {"kind": "NOISE", "seed": 1}}
    result: NodeResult = asyncio.run(declaration.lower(context, inputs))
    ((function, given),) = context.emitted
    assert function == "pack.call"
    assert given["node"]["class_type"] == "SamplerCustomAdvanced"
    assert given["calls"] == [inputs]
    assert result.outputs == ({"samples": 1}, {"samples": 2})


def test_only_classes_that_take_objects_have_twins() -> None:
    assert list(Twins.of(Scopes(), None).declare(NODES)) == ["7", "8"]
    for name, inputs in TWINS.items():
        declaration = BUILTIN.get(name)
        assert declaration is not None
        assert set(inputs) <= {spec.name for spec in declaration.inputs}


def test_sampler_that_a_pack_has_added_is_offered_and_runs_where_the_pack_is() -> None:
    twins = Twins.of(Scopes(), Catalog((), {}, samplers=("mine",), schedulers=("slow",)))
    declared = {each.name: each for each in twins.described()}
    assert set(declared) == {"KSampler", "KSamplerAdvanced", "KSamplerSelect", "BasicScheduler"}
    choices: Any = next(spec.type for spec in declared["KSampler"].inputs if spec.name == "scheduler")
    assert choices[-2:] == ("kl_optimal", "slow")
    assert names_foreign({"1": {"class_type": "KSampler", "inputs": {"sampler_name": "mine"}}})
    assert not names_foreign({"1": {"class_type": "KSampler", "inputs": {"sampler_name": "euler"}}, "2": 3})
    context: Any = Context()
    asyncio.run(declared["KSampler"].lower(context, {"sampler_name": "mine", "scheduler": "simple"}))
    assert [function for function, _ in context.emitted] == ["pack.call"]
    assert Twins.of(Scopes(), None).described() == []


def test_packs_are_told_about_one_class_or_all() -> None:
    class Files:
        """Offers one file everywhere."""

        def names(self, folder: str) -> list[str]:
            return [f"{folder}.safetensors"]

        def input_names(self, content: str) -> list[str]:
            return ["a.png"]

    info = BuiltinInfo(Files())  # type: ignore[arg-type]
    entry = info.answer(None, {"class_type": "CheckpointLoaderSimple"})
    assert entry["input"]["required"]["ckpt_name"] == [["checkpoints.safetensors"], {}]
    assert info.answer(None, {"class_type": "Nothing"}) == {}
    assert set(info.answer(None, {"class_type": None})) == set(BUILTIN.names())
