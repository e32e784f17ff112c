"""Schemas: what is checked, and what is added to them."""

from __future__ import annotations

import pytest

from tests.unit.host.api.schemas import io


def test_ids_of_inputs_must_be_unique() -> None:
    with pytest.raises(ValueError, match="several inputs with the ids x"):
        io.Schema("N", inputs=[io.Int.Input("x"), io.Float.Input("x")]).validate()


def test_ids_of_outputs_must_be_unique_and_those_without_get_one() -> None:
    with pytest.raises(ValueError, match="several outputs with the ids a"):
        io.Schema("N", outputs=[io.Int.Output("a"), io.Float.Output("a")]).validate()
    schema = io.Schema("N", outputs=[io.Int.Output(), io.Int.Output("mine"), io.Int.Output()])
    schema.validate()
    schema.finalize()
    assert [output.id for output in schema.outputs] == ["_0_INT_", "mine", "_2_INT_"]


def test_output_nodes_get_the_prompt_and_the_workflow_beside_what_they_ask_for() -> None:
    schema = io.Schema("N", is_output_node=True, hidden=[io.Hidden.unique_id, io.Hidden.prompt])
    schema.finalize()
    schema.finalize()
    assert schema.hidden_tags() == {
        "unique_id": "UNIQUE_ID",
        "prompt": "PROMPT",
        "extra_pnginfo": "EXTRA_PNGINFO",
    }


def test_fields_of_a_later_version_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert io.Schema("N", shines=True).node_id == "N"
    assert "shines" in caplog.text


def test_hidden_values_that_were_not_asked_for_are_none() -> None:
    hidden = io.HiddenHolder({"unique_id": "7"})
    assert (hidden.unique_id, hidden.prompt, hidden.something_new) == ("7", None, None)


def test_replacement_is_described_as_the_route_has_it() -> None:
    made = io.NodeReplace("New", "Old", input_mapping=[{"new_id": "a", "old_id": "b"}])
    assert made.as_dict() == {
        "new_node_id": "New",
        "old_node_id": "Old",
        "old_widget_ids": None,
        "input_mapping": [{"new_id": "a", "old_id": "b"}],
        "output_mapping": None,
    }
