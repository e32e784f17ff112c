"""Packed objects read like mappings and go into JSON as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.control.records.packed import PackedJson, to_json, unpacked

OBJECTS = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.text(), max_size=2), max_size=4)


@settings(max_examples=40)
@given(value=OBJECTS)
def test_packed_object_reads_as_what_was_packed(value: dict[str, Any]) -> None:
    packed = PackedJson.of(value)
    assert (packed, dict(packed), len(packed), list(packed)) == (value, value, len(value), list(value))
    assert unpacked(packed) == value
    assert PackedJson.of(packed) is packed
    assert json.loads(to_json({"a": [packed, 1]})) == {"a": [value, 1]}


def test_lone_surrogates_survive_beside_packed_objects() -> None:
    packed = PackedJson.of({"a": "\ud83d"})
    assert packed["a"] == "\ud83d"
    assert json.loads(to_json(["\ud83d", packed])) == ["\ud83d", {"a": "\ud83d"}]


def test_text_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON object"):
        PackedJson(b"[1]").unpacked()


def test_what_json_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json([object()])
