"""Records look like the recorded server's, and jobs satisfy the page's strict rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.views import (
    NodeOrigin,
    NodesCached,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId
from comfyserverless.server.records import history_record, job_detail, job_summary, queue_item

DATA = Path(__file__).parents[2] / "contract/data"
RECORDED = json.loads((DATA / "get.json").read_text())
RUN = PromptId("11111111-2222-3333-4444-555555555555")
COMMON = (RUN, DEFAULT_TENANT, "c1")
PICTURE = {"filename": "a.png", "subfolder": "", "type": "output"}


def ended(status: RunStatus = RunStatus.SUCCESS, **outputs: dict[str, list[Any]]) -> RunRecord:
    """Return a record of a prompt that ended; outputs: ui dicts by node."""
    last = {
        RunStatus.SUCCESS: RunSucceeded(*COMMON, 30),
        RunStatus.INTERRUPTED: RunInterrupted(*COMMON, NodeId("3"), "KSampler", (), 30),
        RunStatus.ERROR: RunFailed(
            *COMMON, NodeId("3"), "KSampler", (), "no\n", "ValueError", ("frame",), {"a": [1]}, (), 30
        ),
    }[status]
    return RunRecord(
        prompt_id=RUN,
        tenant=DEFAULT_TENANT,
        number=7.0,
        prompt={"3": {}},
        extra_data={"create_time": 10, "extra_pnginfo": {"workflow": {"id": "w1"}}},
        targets=(NodeId("3"),),
        client_id="c1",
        created_ms=10,
        status=status,
        started_ms=20,
        ended_ms=30,
        workflow="w1",
        outputs={NodeId(node.removeprefix("n")): ui for node, ui in outputs.items()},
        messages=[RunStarted(*COMMON, 20), NodesCached(*COMMON, (), 21), last],
    )


def test_history_record_has_the_recorded_shape() -> None:
    recorded = next(iter(RECORDED["/history?max_items=1"]["body"].values()))
    shown = json.loads(json.dumps(history_record(ended(n2={"images": [PICTURE]}))))
    assert shown.keys() == recorded.keys()
    assert shown["status"].keys() == recorded["status"].keys()
    assert [message[0] for message in shown["status"]["messages"]] == [
        message[0] for message in recorded["status"]["messages"]
    ]
    for shown_message, message in zip(shown["status"]["messages"], recorded["status"]["messages"], strict=True):
        assert shown_message[1].keys() == message[1].keys()
    assert shown["meta"]["2"] == recorded["meta"]["2"]
    assert len(shown["prompt"]) == len(recorded["prompt"])


@pytest.mark.parametrize(
    ("number", "shown"), [(7.0, "7"), (-3.0, "-3"), (7.5, "7.5"), (-0.0, "0"), (1e300, str(int(1e300)))]
)
def test_priorities_are_shown_as_clients_know_them(number: float, shown: str) -> None:
    record = ended()
    record.number = number
    assert str(queue_item(record)[0]) == shown


@pytest.mark.parametrize(
    ("status", "word", "text", "is_completed"),
    [
        (RunStatus.SUCCESS, "completed", "success", True),
        (RunStatus.ERROR, "failed", "error", False),
        (RunStatus.INTERRUPTED, "cancelled", "error", False),
    ],
)
def test_outcome_is_told_in_history_and_jobs(
    status: RunStatus, word: str, text: str, is_completed: bool
) -> None:
    record = ended(status)
    assert job_summary(record)["status"] == word
    assert history_record(record)["status"]["status_str"] == text
    assert history_record(record)["status"]["completed"] is is_completed


def test_job_has_the_recorded_fields() -> None:
    job = job_summary(ended(n2={"images": [PICTURE]}))
    recorded = RECORDED["/api/jobs"]["body"]["jobs"][0]
    assert job.keys() - recorded.keys() == {"previewable_outputs_count", "workflow_id"}
    assert recorded.keys() <= job.keys()
    assert job["preview_output"] == {**PICTURE, "nodeId": "2", "mediaType": "images"}


def test_job_without_values_leaves_fields_out() -> None:
    record = RunRecord(RUN, DEFAULT_TENANT, 1.0, {}, {}, (), None, created_ms=10)
    assert job_summary(record) == {"id": RUN, "status": "pending", "priority": 1, "create_time": 10}
    assert job_detail(record).keys() == {"id", "status", "priority", "create_time", "workflow"}


def test_failed_job_says_why() -> None:
    error = job_summary(ended(RunStatus.ERROR))["execution_error"]
    assert error["exception_type"] == "ValueError"
    assert error["traceback"] == ["frame"]
    assert all(
        isinstance(error[key], str) for key in ("node_id", "node_type", "exception_message", "exception_type")
    )


def test_detail_holds_outputs_status_and_workflow() -> None:
    detail = job_detail(ended(n2={"images": [PICTURE]}))
    assert detail["outputs"] == {"2": {"images": [PICTURE]}}
    assert detail["execution_status"]["status_str"] == "success"
    assert detail["workflow"]["prompt"] == {"3": {}}
    assert detail["workflow_id"] == "w1"


TEMP = {**PICTURE, "type": "temp"}
TEXT_FILE = {"filename": "a.txt", "subfolder": "", "type": "output"}


@pytest.mark.parametrize(
    ("ui", "count", "chosen"),
    [
        ({"images": [TEMP]}, 1, TEMP),
        ({"images": [TEMP, PICTURE]}, 2, PICTURE),
        ({"images": [PICTURE], "animated": [True]}, 1, PICTURE),
        ({"files": [TEXT_FILE], "images": [TEMP]}, 2, TEMP),
        ({"files": [TEXT_FILE]}, 1, TEXT_FILE),
        ({"result": ["sub/a.glb", {"camera": 1}, None]}, 1, {"filename": "a.glb", "subfolder": "sub"}),
        ({"gifs": [{**PICTURE, "filename": "a.mp4", "format": "video/h264-mp4"}]}, 1, {"filename": "a.mp4"}),
        ({"text": ["x" * 2000]}, 0, {"content": "x" * 1024, "truncated": True}),
        ({"text": ["short"]}, 0, {"content": "short"}),
        ({"images": [{"filename": "a.png", "type": "elsewhere"}]}, 0, None),
        ({"images": [{"subfolder": ""}, 5, None]}, 0, None),
    ],
)
def test_preview_is_the_best_item(ui: dict[str, list[Any]], count: int, chosen: dict[str, Any] | None) -> None:
    job = job_summary(ended(n2=ui))
    assert job["outputs_count"] == count
    if chosen is None:
        assert "preview_output" not in job
    else:
        assert chosen.items() <= job["preview_output"].items()
        assert job["preview_output"]["nodeId"] == "2"


def test_history_says_where_outputs_of_added_nodes_belong() -> None:
    record = ended(n2={"text": ["a"]}, n9={"text": ["b"]})
    record.origins = {NodeId("9"): NodeOrigin(NodeId("5"), NodeId("8"), NodeId("2"))}
    assert history_record(record)["meta"] == {
        "2": {"node_id": "2", "display_node": "2", "parent_node": None, "real_node_id": "2"},
        "9": {"node_id": "9", "display_node": "5", "parent_node": "8", "real_node_id": "2"},
    }
