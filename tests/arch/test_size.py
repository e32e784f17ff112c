"""Keep modules, functions, classes and rooms small enough to read in one sitting."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "comfyserverless"

MODULE_LINES = 400
SAMPLER_LINES = 300
FUNCTION_LINES = 60
CLASS_LINES = 300
POSITIONAL_PARAMETERS = 6
FOLDER_MODULES = 15
CORE_MODULES = 10

#: What is larger on purpose: path, or path::name, below the package -> (limit, reason).
EXCEPTIONS: dict[str, tuple[int, str]] = {
    "core": (11, "what the control process and the node host say to each other is a contract of both towers"),
    "host/modules/comfy": (40, "packs import a module for each of ComfyUI's"),
}

#: Where signatures are ComfyUI's, because packs call them by position.
FOREIGN_SIGNATURES = ("host/modules/", "host/models/", "host/encoders/", "host/sampling/", "host/layers/")

MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({module.parent for module in MODULES})


def limit(key: str, default: int) -> int:
    """Return the limit that holds for a key."""
    return EXCEPTIONS.get(key, (default, ""))[0]


def key_of(path: Path) -> str:
    """Name a path below the package, with forward slashes."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def parse(module: Path) -> ast.Module:
    """Parse a module, once.

    Early releases of Python 3.11 raise SystemError when a garbage collection runs code while they parse.
    """
    gc.disable()
    try:
        return ast.parse(module.read_text())
    finally:
        gc.enable()


def definitions(module: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Yield (path::name, node) for every class and function of a module."""
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{key_of(module)}::{node.name}", node


def lines_of(node: ast.stmt) -> int:
    """Count the lines of a definition, from its `def` or `class` to its end."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("module", MODULES, ids=key_of)
def test_module_is_short(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= limit(key_of(module), MODULE_LINES)


@pytest.mark.parametrize("module", sorted((PACKAGE / "sampling/samplers").rglob("*.py")), ids=key_of)
def test_a_sampler_family_is_shorter_still(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= SAMPLER_LINES


@pytest.mark.parametrize("module", MODULES, ids=key_of)
def test_functions_and_classes_are_short(module: Path) -> None:
    long = {}
    for key, node in definitions(module):
        allowed = limit(key, CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES)
        if lines_of(node) > allowed:
            long[key] = (lines_of(node), allowed)
    assert not long, "definition: (lines, allowed)"


@pytest.mark.parametrize("module", MODULES, ids=key_of)
def test_functions_take_few_positional_parameters(module: Path) -> None:
    wide = {}
    for key, node in definitions(module):
        if isinstance(node, ast.ClassDef) or key.startswith(FOREIGN_SIGNATURES):
            continue
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        names = [
            each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in ("self", "cls")
        ]
        if len(names) > POSITIONAL_PARAMETERS:
            wide[key] = names
    assert not wide, "make them keywords, or a dataclass"


@pytest.mark.parametrize("folder", FOLDERS, ids=key_of)
def test_folder_has_few_modules(folder: Path) -> None:
    count = len([module for module in folder.glob("*.py") if module.name != "__init__.py"])
    assert count <= limit(key_of(folder), CORE_MODULES if folder.name == "core" else FOLDER_MODULES)


def test_every_exception_is_still_needed() -> None:
    sizes = {key_of(module): len(module.read_text().splitlines()) for module in MODULES}
    sizes |= {key_of(folder): len(list(folder.glob("*.py"))) - 1 for folder in FOLDERS}
    sizes |= {key: lines_of(node) for module in MODULES for key, node in definitions(module)}
    gone = [key for key in EXCEPTIONS if key not in sizes]
    assert not gone, "no longer exists: take it off the list"
    for key, (allowed, reason) in EXCEPTIONS.items():
        assert reason, f"{key} has no reason"
        assert sizes[key] <= allowed
