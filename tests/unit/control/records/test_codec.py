"""What JSON can say comes back from the records as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.control.records.codec import (
    decode_request,
    decode_result,
    encode_request,
    encode_result,
    workflow_id,
)
from comfyserverless.control.views import NodeOrigin, NodesCached, RunFailed, RunInterrupted, RunStarted
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId
from tests.support.records import waiting

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=40)
@given(prompt=st.dictionaries(st.text(), JSON, max_size=3), extra=st.dictionaries(st.text(), JSON, max_size=3))
def test_request_comes_back_as_it_was(prompt: dict[str, Any], extra: dict[str, Any]) -> None:
    record, empty = waiting("a"), waiting("b")
    record.prompt, record.extra_data, record.targets = prompt, extra, (NodeId("1"), NodeId("x:2"))
    decode_request(encode_request(record), empty)
    assert (empty.prompt, empty.extra_data, empty.targets) == (prompt, extra, record.targets)
    assert list(empty.prompt) == list(prompt), "order is that of the page"


def test_every_kind_of_message_comes_back_with_its_type() -> None:
    record, empty = waiting("a"), waiting("a")
    who = (record.prompt_id, DEFAULT_TENANT, None)
    record.outputs = {NodeId("9"): {"text": ["lone \ud83d half"], "images": []}}
    failed = RunFailed(
        *who, NodeId("1"), "KSampler", (NodeId("3"),), "m", "E", ("f",), {"seed": [2**70]}, (NodeId("3"),), 7
    )
    interrupted = RunInterrupted(*who, NodeId("1"), "KSampler", (), 9)
    record.messages = [
        RunStarted(*who, 5),
        NodesCached(*who, (NodeId("a"), NodeId("b")), 6),
        failed,
        interrupted,
    ]
    decode_result(encode_result(record), empty)
    assert (empty.messages, empty.outputs) == (record.messages, record.outputs)


def test_origins_of_added_nodes_come_back() -> None:
    record, empty = waiting("a"), waiting("a")
    record.origins = {NodeId("9"): NodeOrigin(NodeId("5"), NodeId("8"), NodeId("2"))}
    decode_result(encode_result(record), empty)
    assert empty.origins == record.origins


@pytest.mark.parametrize("extra", [{}, {"extra_pnginfo": None}, {"extra_pnginfo": {"workflow": {"id": 3}}}])
def test_prompt_without_a_workflow_has_no_id_of_one(extra: dict[str, Any]) -> None:
    assert workflow_id(extra) is None
