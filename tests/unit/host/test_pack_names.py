"""Every name of the tables is there, under the module that packs import it from."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pack_modules import module, pack_modules

NAMES: dict[str, list[str]] = json.loads((Path(__file__).parent / "data" / "pack_names.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pack_modules(tmp_path_factory.mktemp("server")):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_module_has_all_names_that_packs_import(name: str) -> None:
    imported = module(name)
    assert [each for each in NAMES[name] if not hasattr(imported, each)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_a_module_lacks_is_named_with_it(name: str) -> None:
    with pytest.raises(AttributeError, match=f"comfyserverless has no {name}.__nothing__"):
        _ = module(name).__nothing__


def test_parts_of_comfy_need_no_import_of_their_own() -> None:
    assert isinstance(module("comfy").utils, types.ModuleType)
    with pytest.raises(AttributeError, match=r"comfyserverless has no comfy\.nothing"):
        _ = module("comfy").nothing


def test_importing_a_name_that_is_not_there_says_so_in_our_words() -> None:
    with pytest.raises(ImportError, match=r"comfyserverless has no comfy\.utils\.nothing"):
        exec("from comfy.utils import nothing")


def test_blocker_is_one_class_under_all_its_names() -> None:
    found = {module(name).ExecutionBlocker for name in ("comfy_execution.graph_utils", "execution")}
    assert len(found) == 1


def test_what_is_only_there_to_be_imported_refuses_to_work_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"comfyserverless has no app\.user_manager\.UserManager"):
        module("app.user_manager").UserManager()
    with pytest.raises(NotImplementedError, match=r"execution\.validate_prompt"):
        module("execution").validate_prompt({})
