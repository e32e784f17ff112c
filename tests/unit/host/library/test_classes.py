"""Call built-in nodes as Python classes: by position, by name, with defaults, and subclassed."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.host import bridge
from comfyserverless.host.library.classes import BuiltinNode, make_class
from comfyserverless.host.library.mapping import ClassMappings
from comfyserverless.host.library.methods import METHODS
from comfyserverless.host.loading.registry import REGISTRY
from comfyserverless.nodes.registry import BUILTIN

ENTRY = {
    "input": {
        "required": {"text": ["STRING", {"default": "none"}], "clip": ["CLIP", {}]},
        "optional": {"how": [["a", "b"], {}]},
    },
    "output": ["CONDITIONING"],
    "output_name": ["CONDITIONING"],
    "output_is_list": [False],
    "python_module": "nodes",
    "category": "conditioning",
}


class Nodes(bridge.Offline):
    """A bridge that notes which nodes run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []

    def ask(self, kind: str, payload: Any) -> Any:
        if kind == "object_info":
            return {"input": {"required": {"text": ["STRING", {"default": "now"}]}}}
        self.ran.append((payload["class_type"], payload["inputs"]))
        return ["done"]


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()
    monkeypatch.setattr(bridge, "_bridge", made)
    return made


def test_method_takes_comfyuis_order_and_gives_a_tuple(nodes: Nodes) -> None:
    made: Any = make_class("CLIPTextEncode", ENTRY)
    result = made().encode("clip", text="a cat")
    assert result == ("done",)
    assert result.result == result.args == ("done",)
    assert nodes.ran == [("CLIPTextEncode", {"text": "a cat", "clip": "clip", "how": "a"})]
    assert getattr(made(), made.FUNCTION)("clip") == ("done",)
    assert made.execute(clip="x") == ("done",)


def test_too_many_and_doubled_parameters_are_errors() -> None:
    made: Any = make_class("CLIPTextEncode", ENTRY)
    with pytest.raises(TypeError, match="takes 2 inputs, but 3"):
        made().encode("clip", "text", "more")
    with pytest.raises(TypeError, match="several values for clip"):
        made().encode("clip", clip="other")


def test_class_says_what_the_server_says_now() -> None:
    made: Any = make_class("CLIPTextEncode", ENTRY)
    assert made.RETURN_TYPES == ("CONDITIONING",)
    assert made.CATEGORY == "conditioning"
    assert made.INPUT_TYPES() == {"required": {"text": ("STRING", {"default": "now"})}}

    class Own(made):  # type: ignore[misc]
        """A pack's own."""

        def encode(self, clip: Any, text: str) -> Any:
            return super().encode(clip, text + "!")

    assert Own().encode("clip", "a") == ("done",)


def test_class_of_no_known_method_has_execute() -> None:
    assert make_class("SomethingNew", ENTRY).FUNCTION == "execute"  # type: ignore[attr-defined]


def test_parameters_of_methods_are_inputs_of_the_nodes() -> None:
    hidden = {"prompt", "extra_pnginfo", "filename_prefix"}
    wrong = {
        name: sorted(set(order) - {spec.name for spec in declaration.inputs} - hidden)
        for name, (_, order) in METHODS.items()
        if (declaration := BUILTIN.get(name)) is not None
    }
    assert {name: names for name, names in wrong.items() if names} == {}


def test_what_a_pack_writes_into_the_mapping_is_a_class_of_prompts() -> None:
    class Own:
        """A pack's own."""

    mapping = ClassMappings({"KSampler": BuiltinNode})
    mapping["WrittenForTest"] = Own
    mapping["KSampler"] = Own
    mapping.update({"AlsoWrittenForTest": Own})
    found = [REGISTRY.get(name) for name in ("WrittenForTest", "AlsoWrittenForTest", "KSampler")]
    assert [entry and entry.cls for entry in found] == [Own, Own, None]
    assert mapping["KSampler"] is Own
