"""Every name and method of the tables of sampling and models is there, for packs that import or call it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pack_modules import module, pack_modules

_TABLES = json.loads((Path(__file__).parent / "data" / "model_names.json").read_text())
NAMES: dict[str, list[str]] = _TABLES["modules"]
METHODS: dict[str, list[str]] = _TABLES["methods"]


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pack_modules(tmp_path_factory.mktemp("server")) as bridge:
        bridge.answers["object_info"] = {}
        yield


@pytest.mark.parametrize("name", NAMES)
def test_names_can_be_imported_from_the_module(name: str) -> None:
    found: dict[str, Any] = {}
    exec(f"from {name} import {', '.join(NAMES[name])}", found)
    assert set(NAMES[name]) <= set(found)


@pytest.mark.parametrize("name", METHODS)
def test_objects_have_the_methods_that_packs_call(name: str) -> None:
    holder, _, kind = name.rpartition(".")
    cls = getattr(module(holder), kind)
    assert [each for each in METHODS[name] if not hasattr(cls, each)] == []


def test_class_that_we_lack_can_be_subclassed_and_checked_for_but_not_made() -> None:
    base = module("comfy.model_base")

    class Own(base.Flux):  # type: ignore[misc,name-defined]
        """A pack's own."""

    assert not isinstance(object(), base.Flux)
    assert issubclass(Own, base.BaseModel)
    with pytest.raises(NotImplementedError, match=r"comfyserverless has no comfy\.model_base\.Flux"):
        base.Flux()


def test_function_that_we_lack_can_be_imported_and_refuses_by_name() -> None:
    found: dict[str, Any] = {}
    exec("from comfy.sd import load_gligen, load_audio_things", found)
    with pytest.raises(NotImplementedError, match=r"comfy\.sd\.load_gligen"):
        found["load_gligen"]()
    with pytest.raises(NotImplementedError, match=r"comfy\.sd\.load_audio_things"):
        found["load_audio_things"]()
    assert not hasattr(module("comfy.sd"), "load_audio_things")


def test_models_of_other_families_can_be_mentioned_at_any_depth() -> None:
    found: dict[str, Any] = {}
    exec("from comfy.ldm.wan.model import WanModel\nimport comfy.text_encoders.flux", found)
    assert isinstance(found["WanModel"], type)
