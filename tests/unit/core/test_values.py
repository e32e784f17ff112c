"""The value tree and its wire form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core import values
from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.values import (
    ClipRef,
    ControlNetRef,
    FileRef,
    LoraRef,
    ModelRef,
    Output,
    Patch,
    TensorRef,
    UpscaleRef,
    VaeRef,
)

FILE = FileRef("/models/a.safetensors", 3, 4)
HANDLES = (
    TensorRef(TensorId("w0.0:1"), (1, 4, 8, 8), "float32", 1024, WorkerId("w0.0"), 512),
    FILE,
    LoraRef(FILE, -0.5),
    Patch("rescale", (("multiplier", 0.7), ("on", True), ("name", "x"), ("none", None))),
    ModelRef(FILE, (LoraRef(FILE, 1.0),), (Patch("p"),)),
    ClipRef((FILE, FILE), "sdxl", (LoraRef(FILE, 1.0),), -2, ("/embeddings",)),
    VaeRef(FILE),
    ControlNetRef(FILE),
    ControlNetRef(FILE, (3,)),
    UpscaleRef(FILE),
)
LITERALS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
)
TREES = st.recursive(
    LITERALS | st.sampled_from(HANDLES),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner),
    max_leaves=20,
)


@given(TREES)
def test_tree_survives_the_wire(tree: Any) -> None:
    assert values.decode(values.encode(tree)) == tree


@given(TREES)
def test_tensors_are_listed_in_tree_order_with_repeats(tree: Any) -> None:
    both = [leaf for leaf in values.walk([tree, {"again": tree}]) if type(leaf) is TensorRef]
    assert values.tensor_refs([tree, {"again": tree}]) == both


def test_tuples_travel_as_lists_with_their_handles() -> None:
    assert values.decode(values.encode((1, (FILE,)))) == [1, [FILE]]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Output(InvocationId("i"), "x"), TypeError),
        ([{"deep": {1, 2}}], TypeError),
        (object(), TypeError),
        ("\ud800", ValueError),
        (2**64, OverflowError),
    ],
)
def test_what_is_no_value_has_no_wire_form(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        values.encode(value)


def test_unknown_extension_is_refused() -> None:
    with pytest.raises(ValueError, match="extension type 7"):
        values.decode(b"\xd4\x07\x00")


def test_outputs_are_found_and_replaced_by_parts() -> None:
    output = Output(InvocationId("i"), "state")
    tree = {"a": [1, output["x"][0]], "b": output}
    assert values.outputs_in(tree) == [output["x"][0], output]
    replaced = values.replace_outputs(tree, lambda each: "/".join(str(key) for key in each.path))
    assert replaced == {"a": [1, "x/0"], "b": ""}
    assert tree["b"] is output


def test_missing_part_is_a_key_error() -> None:
    assert values.select({"a": [1, 2]}, ("a", 1)) == 2
    with pytest.raises(KeyError):
        values.select({"a": 1}, ("b",))
