"""Prove the two towers: what may import what, and that the control tower is light."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "comfyserverless"

CONTROL_ROOMS = (
    "core",
    "residency",
    "sdk",
    "graph",
    "nodes",
    "scheduling",
    "control",
    "server",
    "sim",
    "client",
    "demo",
)
HEAVY = ("torch", "numpy", "diffusers", "transformers", "scipy")

#: Rooms that stand beside the towers: they start both as processes and import neither.
FREE_ROOMS = {"bench"}

# Runs in an interpreter of its own. Each module is imported with nothing of the package loaded before it, so
# an import cycle that only works in a lucky order fails, and a heavy import is charged to the module making it.
PROBE = """
import importlib, json, sys
heavy, names = json.loads(sys.argv[1])
found = {}
for name in names:
    for loaded in [each for each in sys.modules if each.split(".")[0] == "comfyserverless"]:
        del sys.modules[loaded]
    importlib.import_module(name)
    bad = sorted(each for each in heavy if each in sys.modules)
    if bad:
        found[name] = bad
        for each in list(sys.modules):
            if each.split(".")[0] in heavy:
                del sys.modules[each]
print(json.dumps(found))
"""


def modules_of(room: str) -> list[str]:
    """List the dotted names of a room's modules."""
    paths = sorted((PACKAGE / room).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("room", ["", *CONTROL_ROOMS])
def test_no_module_of_the_control_tower_loads_torch_or_numpy(room: str) -> None:
    names = modules_of(room) if room else ["comfyserverless", "comfyserverless.cli"]
    assert names
    command = [sys.executable, "-c", PROBE, json.dumps([HEAVY, names])]
    probe = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert probe.returncode == 0, probe.stderr
    assert json.loads(probe.stdout) == {}


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    lint = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert lint.returncode == 0, lint.stdout


def test_every_room_is_placed_in_a_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = config["tool"]["importlinter"]["contracts"]
    layers = [layer for contract in contracts for layer in contract.get("layers", ())]
    placed = {name.strip().split(".")[1] for layer in layers for name in layer.split(":")}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert placed | FREE_ROOMS == rooms
