"""Unknown classes become what packs name instead; known ones never change."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.server.content.replacements import read_replacements, replaced

ENTRY = {
    "new_node_id": "New",
    "input_mapping": [{"new_id": "picture", "old_id": "image"}, {"new_id": "mode", "set_value": "fine"}],
    "output_mapping": [{"old_idx": 0, "new_idx": 1}],
}
PROMPT = {
    "1": {"class_type": "Old", "inputs": {"image": ["3", 0], "gone": 1}, "_meta": {"title": "t"}},
    "2": {"class_type": "New", "inputs": {"picture": ["1", 0], "other": ["1", 5]}},
}
KNOWN = {"New"}


def is_known(name: str) -> bool:
    return name in KNOWN


def test_unknown_class_is_replaced_with_its_inputs_and_links() -> None:
    result = replaced(PROMPT, read_replacements([{"Old": [ENTRY]}]), is_known)
    assert result["1"] == {
        "class_type": "New",
        "inputs": {"picture": ["3", 0], "mode": "fine"},
        "_meta": {"title": "t"},
    }
    assert result["2"]["inputs"] == {"picture": ["1", 1], "other": ["1", 5]}
    assert PROMPT["1"]["class_type"] == "Old"


def test_inputs_keep_their_names_without_a_mapping() -> None:
    result = replaced(PROMPT, read_replacements([{"Old": [{"new_node_id": "New"}]}]), is_known)
    assert result["1"]["inputs"] == PROMPT["1"]["inputs"]


@pytest.mark.parametrize("source", [{"New": [ENTRY]}, {"Old": [{"new_node_id": "Unknown"}]}, {}])
def test_known_classes_and_unknown_replacements_are_left_alone(source: dict[str, Any]) -> None:
    assert replaced(PROMPT, read_replacements([source]), is_known) is PROMPT


@pytest.mark.parametrize("prompt", [None, 3, [], {"1": 2}, {"1": {"class_type": 4}}, {"1": {}}])
def test_what_is_no_graph_is_left_to_the_validation(prompt: Any) -> None:
    assert replaced(prompt, read_replacements([{"Old": [ENTRY]}]), is_known) is prompt


@pytest.mark.parametrize(
    "entries",
    [
        None,
        3,
        ["x"],
        [{}],
        [{"new_node_id": 3}],
        [{"new_node_id": "New", "input_mapping": [{}]}],
        [{"new_node_id": "New", "output_mapping": [{"new_idx": "0", "old_idx": 0}]}],
    ],
)
def test_broken_entries_are_left_out(entries: Any) -> None:
    assert read_replacements([{"Old": entries}]) == {}


def test_what_the_route_shows_is_complete() -> None:
    (entry,) = read_replacements([{"Old": [ENTRY]}])["Old"]
    assert entry == {**ENTRY, "old_node_id": "Old", "old_widget_ids": []}
