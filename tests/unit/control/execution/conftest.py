"""Benches with node classes of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.graph.declaration import NodeDeclaration
from tests.support.execution import Bench


@pytest.fixture
def bench_of(tmp_path: Path) -> Callable[..., Bench]:
    """Return what makes a bench of node classes."""

    def make(*classes: NodeDeclaration, **more: Any) -> Bench:
        return Bench(classes, tmp_path, **more)

    return make
