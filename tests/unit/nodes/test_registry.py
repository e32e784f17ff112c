"""The set of built-in nodes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comfyserverless.nodes.registry import BUILTIN, Registry
from tests.support.graph_fakes import node_class


def test_names_are_found_and_others_are_not() -> None:
    assert all(BUILTIN.get(name) is not None for name in BUILTIN.names())
    assert BUILTIN.get("NoSuchNode") is None


def test_name_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="Twice"):
        Registry((node_class("Twice"), node_class("Twice")))


def test_declarations_load_neither_torch_nor_numpy() -> None:
    code = "import sys, comfyserverless.nodes.registry; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
