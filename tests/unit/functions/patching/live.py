"""Models whose patches are plain functions of a test, not pickled ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from comfyserverless.core.values import PYTHON_PATCH, ModelRef, Patch
from comfyserverless.functions.patching import pickled
from tests.support.analytic_models import MODEL

_numbers = itertools.count()

Patched = Callable[..., ModelRef]


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Patched:
    """Return a function that makes a model with model_options, object_patches and built-in patches."""
    held: dict[str, Any] = {}
    monkeypatch.setattr(pickled, "_read", held.__getitem__)

    def make(
        options: dict[str, Any], objects: dict[str, Any] | None = None, before: tuple[Patch, ...] = ()
    ) -> ModelRef:
        path = f"/patches/{next(_numbers)}"
        held[path] = {"model_options": options, "object_patches": objects or {}}
        return ModelRef(MODEL.file, patches=(*before, Patch(PYTHON_PATCH, (("path", path),))))

    return make
