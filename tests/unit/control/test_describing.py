"""What an error report says, and where it points."""

from __future__ import annotations

from comfyserverless.control.describing import MODEL_FILE_ERROR, blamed_node, frames, shown_inputs, type_name
from comfyserverless.core.errors import PromptError, WorkerError
from comfyserverless.core.ids import InvocationId, NodeId, TensorId, WorkerId
from comfyserverless.core.values import FileRef, ModelRef, ObjectRef, Output, TensorRef
from comfyserverless.graph.plan import Constant, Link, Plan, PlanNode
from comfyserverless.nodes.registry import BUILTIN


def node(name: str, kind: str, **inputs: Link | Constant) -> PlanNode:
    declaration = BUILTIN.get(kind)
    assert declaration is not None
    return PlanNode(NodeId(name), declaration, inputs)


def plan() -> Plan:
    nodes = (
        node("1", "CheckpointLoaderSimple", ckpt_name=Constant("sub/a.safetensors")),
        node(
            "2",
            "LoraLoader",
            model=Link(NodeId("1"), 0),
            clip=Link(NodeId("1"), 1),
            lora_name=Constant("b.safetensors"),
        ),
        node("3", "CLIPTextEncode", clip=Link(NodeId("2"), 1), text=Constant("x")),
    )
    return Plan({each.id: each for each in nodes}, (NodeId("3"),), {})


def model_error(text: str) -> WorkerError:
    return WorkerError(text, MODEL_FILE_ERROR)


def test_bad_model_file_is_shown_at_the_loader_that_names_it() -> None:
    assert blamed_node(plan(), NodeId("3"), model_error("/models/loras/b.safetensors: is truncated")) == "2"
    assert (
        blamed_node(plan(), NodeId("3"), model_error("/models/checkpoints/sub/a.safetensors: is truncated"))
        == "1"
    )


def test_other_errors_stay_at_the_node_that_failed() -> None:
    for path in ("/models/c.safetensors", "/models/ab.safetensors", "/models/a.safetensors"):
        assert blamed_node(plan(), NodeId("3"), model_error(f"{path}: is truncated")) == "3"
    assert blamed_node(plan(), NodeId("3"), WorkerError("a.safetensors", "ValueError")) == "3"
    assert blamed_node(plan(), NodeId("3"), PromptError("a.safetensors")) == "3"


def test_worker_error_keeps_its_type_and_frames() -> None:
    error = WorkerError("no", "torch.OutOfMemoryError", ("one", "two"))
    assert (type_name(error), frames(error)) == ("torch.OutOfMemoryError", ("one", "two"))
    assert type_name(ValueError()) == "ValueError"


def test_our_own_errors_show_no_frames_and_others_do() -> None:
    caught: dict[str, tuple[str, ...]] = {}
    for error in (PromptError("x"), KeyError("x")):
        try:
            raise error
        except (PromptError, KeyError) as exc:
            caught[type_name(exc)] = frames(exc)
    assert caught["comfyserverless.core.errors.PromptError"] == ()
    assert len(caught["KeyError"]) == 1


def test_inputs_are_shown_as_literals_and_links_by_their_source() -> None:
    shown = shown_inputs(plan().nodes[NodeId("3")])
    assert shown == {"clip": ["output 1 of node 2"], "text": ["x"]}


def test_values_are_shown_as_json_and_all_else_by_name() -> None:
    there = Output(InvocationId("i"), "images")
    picture = TensorRef(TensorId("t"), (1, 8, 8, 3), "float32", 768, WorkerId("w0.0"), 0)
    values = [
        1,
        float("inf"),
        None,
        "text",
        there,
        Output(InvocationId("other"), "x"),
        [picture, {"a": 1}],
        ObjectRef(TensorId("o"), WorkerId("h"), "pack.Thing"),
        ModelRef(FileRef("/models/checkpoints/a.safetensors")),
    ]
    shown = shown_inputs(
        plan().nodes[NodeId("3")], {"text": values}, lambda output: picture if output == there else None
    )
    assert shown["clip"] == ["output 1 of node 2"]
    assert shown["text"] == [
        1,
        "inf",
        None,
        "text",
        "tensor of float32 [1, 8, 8, 3]",
        "(not known yet)",
        "['tensor of float32 [1, 8, 8, 3]', {'a': 1}]",
        "<pack.Thing>",
        "<ModelRef of a.safetensors>",
    ]


def test_error_may_have_a_name_that_clients_know_it_by() -> None:
    class Named(PromptError):
        shown_as = "graph.DependencyCycleError"

    assert type_name(Named("x")) == "graph.DependencyCycleError"
