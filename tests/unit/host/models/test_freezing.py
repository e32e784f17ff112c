"""Pickle what packs put into models: their own modules by value, and what cannot travel by its name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.models import scratch
from comfyserverless.host.models.freezing import freeze, pickle_by_value, thaw

CODE = """
FACTOR = 3
def times(value):
    return value * FACTOR
class Keeper:
    def __init__(self, by):
        self.by = by
    def __call__(self, value):
        return times(value) + self.by
"""


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Return a module of a pack: nobody else can import it."""
    made = types.ModuleType("/somewhere/custom_nodes/pack_x")
    made.__file__ = str(tmp_path / "pack_x.py")
    exec(CODE, vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_objects_of_a_pack_are_read_where_the_pack_is_not(pack: Any, tmp_path: Path) -> None:
    data = pickle_by_value({"model_options": {"f": [pack.Keeper(1)]}, "object_patches": {}})
    (tmp_path / "data").write_bytes(data)
    code = (
        f"import pickle; print(pickle.load(open({str(tmp_path / 'data')!r}, 'rb'))['model_options']['f'][0](5))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "16"


def test_nothing_stays_registered(pack: Any) -> None:
    pickle_by_value([pack.times])
    with pytest.raises((pickle.PicklingError, ImportError, ModuleNotFoundError)):
        pickle.loads(pickle.dumps(pack.times).replace(b"pack_x", b"pack_y"))


def test_empty_options_need_no_file() -> None:
    assert freeze({"transformer_options": {"patches": {}}}, {}) is None


def test_frozen_options_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_folders", [tmp_path])
    patch = freeze({"sampler_cfg_function": len, "transformer_options": {}}, {"model_sampling": 3})
    assert patch is not None
    assert thaw(patch) == ({"sampler_cfg_function": len}, {"model_sampling": 3})
    assert freeze({"sampler_cfg_function": len, "transformer_options": {}}, {"model_sampling": 3}) == patch


def test_what_cannot_be_pickled_is_named_with_its_place() -> None:
    lock = threading.Lock()

    def guarded(args: Any) -> Any:
        return lock

    tree = {"model_options": {"transformer_options": {"patches": {"attn1_patch": [len, guarded]}}}}
    message = r"guarded in model_options\.transformer_options\.patches\.attn1_patch\[1\] cannot travel"
    with pytest.raises(NotSupportedError, match=message):
        pickle_by_value(tree)
