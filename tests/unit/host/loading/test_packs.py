"""Importing packs: each by itself, whatever the others do."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from comfyserverless.core.hosting import HostPlan, HostSettings, PackReport
from comfyserverless.host.loading import packs
from comfyserverless.host.loading.packs import WEB_FOLDERS, PackLoader
from comfyserverless.host.loading.registry import ClassRegistry

NODE = """
class Node:
    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    def run(self):
        return (1,)
"""


def pack(folder: Path, name: str, code: str, **files: str) -> Path:
    """Write a pack of one module and more files."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(code)
    for path, text in files.items():
        (place / path.replace("__", ".")).write_text(text)
    return place


def load(folder: Path, **plan: object) -> tuple[dict[str, PackReport], ClassRegistry, list[str]]:
    """Load a folder; returns the reports by name, the classes, and whose code ran in which order."""
    registry, begun = ClassRegistry(), list[str]()
    settings = HostSettings(str(folder), str(folder))
    whole = HostPlan(settings, (str(folder),), **plan)  # type: ignore[arg-type]
    reports = PackLoader(whole, registry, begun.append).load_all()
    return {report.name: report for report in reports}, registry, begun


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("import sys\nsys.exit(4)", "SystemExit: 4"),
        ("def (", "SyntaxError"),
        ("from . import missing", "ImportError"),
        ("x = 1", "PackError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Foul(BaseException): pass\nraise Foul('no')", "Foul: no"),
    ],
)
def test_pack_that_fails_is_named_and_stops_no_other(tmp_path: Path, code: str, told: str) -> None:
    pack(tmp_path, "a_bad", code)
    pack(tmp_path, "b_good", NODE + "NODE_CLASS_MAPPINGS = {'Good': Node}")
    reports, registry, _ = load(tmp_path)
    assert reports["a_bad"].error.startswith(told)
    assert reports["b_good"].error == ""
    assert registry.get("Good") is not None


def test_pack_that_lacks_a_package_which_it_does_not_name_tells_how_to_install_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack(tmp_path, "a_bad", "raise ModuleNotFoundError('no', name='cv2')")
    reports, _, _ = load(tmp_path)
    assert reports["a_bad"].missing == ("opencv-python-headless",)
    assert "pip install opencv-python-headless" in caplog.text


def test_modules_of_a_pack_import_each_other_and_classes_know_their_pack(tmp_path: Path) -> None:
    code = (
        "from .more import Node\nNODE_CLASS_MAPPINGS = {'N': Node}\nNODE_DISPLAY_NAME_MAPPINGS = {'N': 'The N'}"
    )
    pack(tmp_path, "relative.pack", code, more__py=NODE)
    _, registry, _ = load(tmp_path)
    entry = registry.get("N")
    assert entry is not None
    assert entry.display_name == "The N"
    assert entry.cls.RELATIVE_PYTHON_MODULE == entry.python_module == "custom_nodes.relative.pack"


def test_prestartup_scripts_of_all_run_before_the_first_import(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for name in ("a", "b"):
        note = f"with open({str(trace)!r}, 'a') as f: f.write('{{}} {name}\\n')"
        pack(
            tmp_path / "packs",
            name,
            note.format("import") + "\nNODE_CLASS_MAPPINGS = {}",
            prestartup_script__py=note.format("before") + "\nraise OSError('only logged')",
        )
    reports, _, begun = load(tmp_path / "packs")
    assert trace.read_text().split("\n")[:-1] == ["before a", "before b", "import a", "import b"]
    assert begun == ["a", "b", "a", "b", ""]
    assert all(report.error == "" for report in reports.values())


def test_built_in_classes_are_not_replaced_and_of_two_packs_the_last_one_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        pack(tmp_path, name, NODE + "NODE_CLASS_MAPPINGS = {'KSampler': Node, 'Twice': Node}")
    with caplog.at_level(logging.WARNING):
        _, registry, _ = load(tmp_path, taken=("KSampler",))
    entry = registry.get("Twice")
    assert registry.get("KSampler") is None
    assert entry is not None
    assert entry.python_module == "custom_nodes.b"
    assert "Twice of custom_nodes.b replaces that of custom_nodes.a" in caplog.text


def test_whitelist_names_folders_and_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pack(tmp_path, name, "NODE_CLASS_MAPPINGS = {}")
    (tmp_path / "c.py").write_text("NODE_CLASS_MAPPINGS = {}")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "d.disabled").mkdir()
    (tmp_path / "__pycache__").mkdir()
    assert set(load(tmp_path)[0]) == {"a", "b", "c"}
    assert set(load(tmp_path, whitelist=("b", "c.py"))[0]) == {"b", "c"}


def test_pack_that_ended_the_process_before_is_reported_and_not_imported(tmp_path: Path) -> None:
    pack(tmp_path, "deadly", "raise AssertionError('it was imported')", prestartup_script__py="1/0")
    reports, _, begun = load(tmp_path, given_up={"deadly": "its import ended the process"})
    assert reports["deadly"].error == "its import ended the process"
    assert begun == [""]


def test_folder_of_javascript_is_that_of_the_module_or_of_the_project(tmp_path: Path) -> None:
    first = pack(tmp_path, "a", "WEB_DIRECTORY = './js'\nNODE_CLASS_MAPPINGS = {}")
    project = "[project]\nname = 'named'\n[tool.comfy]\nweb = 'web'\n"
    second = pack(tmp_path, "b", "NODE_CLASS_MAPPINGS = {}", pyproject__toml=project)
    third = pack(tmp_path, "c", "WEB_DIRECTORY = 'nowhere'\nNODE_CLASS_MAPPINGS = {}")
    (first / "js").mkdir()
    (second / "web").mkdir()
    WEB_FOLDERS.clear()
    reports, _, _ = load(tmp_path)
    assert (reports["a"].web_name, reports["a"].web_folder) == ("a", str(first / "js"))
    assert (reports["b"].web_name, reports["b"].web_folder) == ("named", str(second / "web"))
    assert reports["c"].web_folder == ""
    assert third.exists()
    assert set(WEB_FOLDERS) == {"a", "named"}


def test_times_of_imports_are_told_slowest_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(packs, "time", SimpleNamespace(perf_counter=lambda: clock.now_s))
    monkeypatch.setitem(sys.modules, "clock_of_a_test", cast("ModuleType", clock))
    pack(tmp_path, "slow", "import clock_of_a_test as clock\nclock.now_s += 1\nNODE_CLASS_MAPPINGS = {}")
    pack(tmp_path, "tiny", "raise OSError('gone')")
    with caplog.at_level(logging.INFO):
        load(tmp_path)
    table = next(record.getMessage() for record in caplog.records if "Import times" in record.message)
    lines = table.split("\n")[1:]
    assert "(failed: OSError: gone)" in lines[0]
    assert lines[1].endswith("slow")
