"""Keep the documents true to the tree: the map of rooms, the invariants and their tests, links, records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comfyserverless.core.samplers import SAMPLER_NAMES, SCHEDULER_NAMES
from comfyserverless.nodes.registry import BUILTIN

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "DECISIONS.md", "CHANGELOG.md")


def section(text: str, title: str) -> str:
    """Return the body of a `## title` section."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no section {title!r}"
    return match.group(1)


def test_architecture_is_short() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 200


def test_map_of_rooms_equals_the_folders() -> None:
    mapped = re.findall(r"^\| `?(\w+)`? \|", section(ARCHITECTURE, "Map of rooms"), re.MULTILINE)
    rooms = {path.parent.name for path in (ROOT / "comfyserverless").glob("*/__init__.py")}
    assert sorted(name for name in mapped if name != "room") == sorted(rooms)


def invariants() -> list[tuple[int, str]]:
    """List (number, text) of the numbered invariants."""
    items = re.findall(
        r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section(ARCHITECTURE, "Invariants"), re.MULTILINE | re.DOTALL
    )
    return [(int(number), text) for number, text in items]


def test_invariants_are_numbered_in_order() -> None:
    numbers = [number for number, _ in invariants()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@pytest.mark.parametrize(("number", "text"), invariants())
def test_invariant_names_an_existing_test(number: int, text: str) -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert names, f"invariant {number} names no test"
    for path, name in names:
        assert re.search(rf"def {name}\b", (ROOT / path).read_text()), f"{path} has no {name}"


def test_decision_records_are_short_and_numbered() -> None:
    records = re.split(r"^## ", (ROOT / "DECISIONS.md").read_text(), flags=re.MULTILINE)[1:]
    assert records
    for number, record in enumerate(records, start=1):
        assert record.startswith(f"{number}. "), record.splitlines()[0]
        assert len(record.strip().splitlines()) <= 25, record.splitlines()[0]


def test_readme_lists_exactly_what_runs() -> None:
    text = section((ROOT / "README.md").read_text(), "What it runs")
    listed = {
        title: re.findall(r"`([^`]+)`", body)
        for title, body in re.findall(r"^(\w+):\n\n(.*?)\n\n", text, re.M | re.S)
    }
    assert listed == {
        "Nodes": sorted(BUILTIN.names()),
        "Samplers": list(SAMPLER_NAMES),
        "Schedulers": list(SCHEDULER_NAMES),
    }


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)|(?<=src=\")([^\"]+)", (ROOT / name).read_text())
    local = [path for pair in targets for path in pair if path and not path.startswith("http")]
    missing = [path for path in local if not (ROOT / path).exists()]
    assert not missing
