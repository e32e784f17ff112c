"""Define the types that have widgets: numbers, texts, switches and choices, and the words of their settings."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar

from comfyserverless.host.api.io.base import ComfyTypeIO, Output, WidgetInput, plain, taking


class FolderType(str, Enum):  # noqa: UP042  packs see a plain mixture
    """A base folder of files."""

    input = "input"
    output = "output"
    temp = "temp"


class UploadType(str, Enum):  # noqa: UP042  packs see a plain mixture
    """What the upload button of a combo takes; the value is the option's name."""

    image = "image_upload"
    audio = "audio_upload"
    video = "video_upload"
    model = "file_upload"


class NumberDisplay(str, Enum):  # noqa: UP042  packs see a plain mixture
    """How the page shows a number."""

    number = "number"
    slider = "slider"
    gradient_slider = "gradientslider"


class ControlAfterGenerate(str, Enum):  # noqa: UP042  packs see a plain mixture
    """What the page does to a value after each run."""

    fixed = "fixed"
    increment = "increment"
    decrement = "decrement"
    randomize = "randomize"


class RemoteOptions:
    """Say where the page gets the choices of a combo from. timeout, refresh: milliseconds."""

    def __init__(self, route: str, refresh_button: bool = True, *args: Any, **settings: Any) -> None:
        names = ("control_after_refresh", "timeout", "max_retries", "refresh")
        given = {**dict(zip(names, args, strict=False)), **settings}
        self.route = route
        self.refresh_button = refresh_button
        self.control_after_refresh = given.pop("control_after_refresh", "first")
        self.timeout = given.pop("timeout", None)
        self.max_retries = given.pop("max_retries", None)
        self.refresh = given.pop("refresh", None)
        self.extra = given

    def as_dict(self) -> dict[str, Any]:
        """Return the option `remote`: what was set."""
        known = {
            "route": self.route,
            "refresh_button": self.refresh_button,
            "control_after_refresh": self.control_after_refresh,
            "timeout": self.timeout,
            "max_retries": self.max_retries,
            "refresh": self.refresh,
            **self.extra,
        }
        return {key: plain(value) for key, value in known.items() if value is not None}


_HEAD: dict[str, Any] = {"display_name": None, "optional": False, "tooltip": None}
_TAIL: dict[str, Any] = {"extra_dict": None, "raw_link": None, "advanced": None, "widget_type": None}


class BooleanInput(WidgetInput):
    """A switch."""

    parameters = taking(
        "id",
        **_HEAD,
        lazy=None,
        default=None,
        label_on=None,
        label_off=None,
        socketless=None,
        force_input=None,
        **_TAIL,
    )


class IntInput(WidgetInput):
    """A whole number."""

    parameters = taking(
        "id",
        **_HEAD,
        lazy=None,
        default=None,
        min=None,
        max=None,
        step=None,
        control_after_generate=None,
        display_mode=None,
        socketless=None,
        force_input=None,
        **_TAIL,
    )


class FloatInput(WidgetInput):
    """A number."""

    parameters = taking(
        "id",
        **_HEAD,
        lazy=None,
        default=None,
        min=None,
        max=None,
        step=None,
        round=None,
        display_mode=None,
        gradient_stops=None,
        socketless=None,
        force_input=None,
        control_after_generate=None,
        **_TAIL,
    )


class StringInput(WidgetInput):
    """A text."""

    parameters = taking(
        "id",
        **_HEAD,
        multiline=False,
        placeholder=None,
        lazy=None,
        default=None,
        dynamic_prompts=None,
        socketless=None,
        force_input=None,
        **_TAIL,
    )


class ComboInput(WidgetInput):
    """One of several choices. options: a list, or an enumeration whose values are the choices.

    upload: gives the page a button that adds a file; remote: the page asks for the choices itself.
    """

    options: Any
    multiselect: bool
    upload: UploadType | None
    parameters = taking(
        "id",
        options=None,
        **_HEAD,
        lazy=None,
        default=None,
        control_after_generate=None,
        upload=None,
        image_folder=None,
        remote=None,
        socketless=None,
        **_TAIL,
        force_input=None,
    )
    always: ClassVar[dict[str, Any]] = {"multiselect": False}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.options, type) and issubclass(self.options, Enum):
            self.options = [member.value for member in self.options]
            self.default = plain(self.default)
        elif isinstance(self.options, Iterable) and not isinstance(self.options, str):
            self.options = list(self.options)

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        upload = {} if self.upload is None else {str(plain(self.upload)): True}
        return {**self.always, **upload, **super().as_dict()}


class MultiComboInput(ComboInput):
    """Any number of several choices; the value is a list."""

    parameters = taking(
        "id",
        "options",
        **_HEAD,
        lazy=None,
        default=None,
        placeholder=None,
        chip=None,
        control_after_generate=None,
        socketless=None,
        upload=None,
        image_folder=None,
        remote=None,
        **_TAIL,
        force_input=None,
    )
    always: ClassVar[dict[str, Any]] = {"multi_select": True}


class ComboOutput(Output):
    """A chosen value. options: the choices, as the type of the output."""

    parameters = taking(id=None, display_name=None, options=None, tooltip=None, is_output_list=False)
    options: list[Any] | None

    def get_io_type(self) -> Any:
        """Return the choices, `COMBO` if there are none."""
        return self.io_type if not self.options else [plain(option) for option in self.options]


class Boolean(ComfyTypeIO, io_type="BOOLEAN"):
    """A truth value."""

    Type = bool
    Input = BooleanInput


class Int(ComfyTypeIO, io_type="INT"):
    """A whole number."""

    Type = int
    Input = IntInput


class Float(ComfyTypeIO, io_type="FLOAT"):
    """A number."""

    Type = float
    Input = FloatInput


class String(ComfyTypeIO, io_type="STRING"):
    """A text."""

    Type = str
    Input = StringInput


class Combo(ComfyTypeIO, io_type="COMBO"):
    """One of several choices."""

    Type = str
    Input = ComboInput
    Output = ComboOutput


class MultiCombo(ComfyTypeIO, io_type="COMBO"):
    """Any number of several choices."""

    Type = list
    Input = MultiComboInput
    Output = ComboOutput
