"""Bodies are JSON or a BodyError, whatever they hold."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.server.bodies import MAX_DEPTH, BodyError, encode_json, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_json_documents_survive_reading_and_writing(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert json.loads(encode_json(value)) == value


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(BodyError):
        parse_json(body)


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"a": Infinity}', b"1e999", b"\xff", b"{'a': 1}"])
def test_malformed_json_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        parse_json(body)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_without_overflow(depth: int, brackets: tuple[str, str]) -> None:
    start, end = brackets
    with pytest.raises(BodyError):
        parse_json(start * depth + "0" + end * depth)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_lone_surrogates_and_byte_order_marks_do_not_reach_the_rest_of_the_server() -> None:
    assert parse_json(b'{"text": "a\\ud800b"}') == {"text": "a?b"}
    assert parse_json(b"\xef\xbb\xbf{}") == {}


def test_numbers_that_json_cannot_hold_become_null() -> None:
    assert encode_json({"max": float("inf"), "big": 2**70}) == b'{"max":null,"big":1180591620717411303424}'
    assert json.loads(encode_json({"text": "\ud800"})) == {"text": "\ud800"}
