"""Constructors of inputs with widgets, and the options that they become."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from tests.unit.host.api.schemas import io


class Color(Enum):
    """Choices of a combo."""

    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("made", "kind", "options"),
    [
        (io.Boolean.Input("x", default=True, label_on="yes", label_off="no"), "BOOLEAN", {"label_on": "yes"}),
        (io.Int.Input("x", default=3, min=0, max=9, step=2, control_after_generate=True), "INT", {"step": 2}),
        (io.Int.Input("x", display_mode=io.NumberDisplay.slider), "INT", {"display": "slider"}),
        (io.Int.Input("x", control_after_generate=io.ControlAfterGenerate.fixed), "INT", {}),
        (io.Float.Input("x", default=0.5, round=0.01), "FLOAT", {"default": 0.5, "round": 0.01}),
        (
            io.Float.Input("x", display_mode=io.NumberDisplay.gradient_slider),
            "FLOAT",
            {"display": "gradientslider"},
        ),
        (
            io.String.Input("x", multiline=True, placeholder="p"),
            "STRING",
            {"multiline": True, "placeholder": "p"},
        ),
        (io.String.Input("x", dynamic_prompts=False), "STRING", {"dynamicPrompts": False, "multiline": False}),
        (io.Combo.Input("x", options=["a", "b"]), "COMBO", {"options": ["a", "b"], "multiselect": False}),
        (io.Combo.Input("x", ["a", "b"], "Shown"), "COMBO", {"options": ["a", "b"], "display_name": "Shown"}),
        (
            io.Combo.Input("x", options=Color, default=Color.BLUE),
            "COMBO",
            {"options": ["red", "blue"], "default": "blue"},
        ),
        (io.Combo.Input("x", options=[], upload=io.UploadType.image), "COMBO", {"image_upload": True}),
        (
            io.Combo.Input("x", options=[], image_folder=io.FolderType.output),
            "COMBO",
            {"image_folder": "output"},
        ),
        (
            io.MultiCombo.Input("x", options=["a"], placeholder="p", chip=True),
            "COMBO",
            {"multi_select": True, "chip": True},
        ),
        (
            io.Int.Input("x", force_input=True, socketless=True, advanced=True),
            "INT",
            {"forceInput": True, "advanced": True},
        ),
        (
            io.Int.Input("x", raw_link=True, lazy=True, tooltip="t"),
            "INT",
            {"rawLink": True, "lazy": True, "tooltip": "t"},
        ),
        (io.Int.Input("x", extra_dict={"more": 1}), "INT", {"more": 1}),
        (io.Webcam.Input("x", default="d"), "WEBCAM", {"default": "d"}),
        (
            io.Color.Input("x", default="#fff", socketless=True),
            "COLOR",
            {"default": "#fff", "socketless": True},
        ),
    ],
)
def test_settings_become_options(made: Any, kind: str, options: dict[str, Any]) -> None:
    assert made.get_io_type() == kind
    given = made.as_dict()
    assert {key: given.get(key) for key in options} == options
    assert None not in given.values()


def test_remote_choices_are_described() -> None:
    remote = io.RemoteOptions("/internal/files/output", refresh_button=True, control_after_refresh="first")
    expected = {"route": "/internal/files/output", "refresh_button": True, "control_after_refresh": "first"}
    assert io.Combo.Input("x", remote=remote).as_dict() == {"multiselect": False, "remote": expected}


def test_input_without_settings_has_no_options() -> None:
    assert io.Image.Input("image").as_dict() == {}
    assert io.Int.Input("x").as_dict() == {}


def test_unknown_setting_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert io.Int.Input("x", shape_of_things="to come").as_dict() == {}
    assert "shape_of_things" in caplog.text


@pytest.mark.parametrize(
    "call", [lambda: io.Int.Input(), lambda: io.Int.Input("x", id="y"), lambda: io.MultiCombo.Input("x")]
)
def test_calls_that_do_not_fit_are_type_errors(call: Any) -> None:
    with pytest.raises(TypeError):
        call()
