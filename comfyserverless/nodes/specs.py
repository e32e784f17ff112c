"""Build input declarations in few words."""

from __future__ import annotations

from typing import Any

from comfyserverless.graph.declaration import FileChoices, InputSpec

MAX_RESOLUTION_PX = 16384
MAX_SEED = 2**64 - 1
QUARTER_TURNS = ("none", "90 degrees", "180 degrees", "270 degrees")
"""Choices of the nodes that turn something; the place of a choice is the number of right angles."""


def socket(name: str, kind: str) -> InputSpec:
    """Declare an input that only takes links (MODEL, LATENT ...)."""
    return InputSpec(name, kind)


def whole(name: str, default: int, low: int, high: int, **options: Any) -> InputSpec:
    """Declare an INT with bounds."""
    return InputSpec(name, "INT", {"default": default, "min": low, "max": high, **options})


def number(name: str, default: float, low: float, high: float, **options: Any) -> InputSpec:
    """Declare a FLOAT with bounds."""
    return InputSpec(name, "FLOAT", {"default": default, "min": low, "max": high, **options})


def text(name: str, **options: Any) -> InputSpec:
    """Declare a STRING."""
    return InputSpec(name, "STRING", options)


def switch(name: str, default: bool) -> InputSpec:
    """Declare a BOOLEAN."""
    return InputSpec(name, "BOOLEAN", {"default": default})


def combo(name: str, choices: tuple[str, ...]) -> InputSpec:
    """Declare a combo with fixed choices."""
    return InputSpec(name, choices)


def choice(name: str, choices: tuple[str, ...], **options: Any) -> InputSpec:
    """Declare a combo in the form of ComfyUI's newer nodes."""
    return InputSpec(name, choices, {"multiselect": False, **options})


def model_file(name: str, folder: str) -> InputSpec:
    """Declare a combo over the files of a model folder."""
    return InputSpec(name, FileChoices(folder))


def seed(name: str) -> InputSpec:
    """Declare a seed; the page changes it after each submission."""
    return whole(name, 0, 0, MAX_SEED, control_after_generate=True)
