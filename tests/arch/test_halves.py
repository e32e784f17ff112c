"""How the tests are shared between processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.halves import ALL_OTHERS, SERVER_FOLDERS, end_what_is_left, piece_of

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "test", ["process/test_free.py::test_a[tests/unit/x.py::y]", "parity/test_cases.py::test_b"]
)
def test_file_that_drives_servers_is_a_piece_of_its_own(test: str) -> None:
    assert piece_of(f"tests/{test}") == f"tests/{test.partition('::')[0]}"


def test_all_that_compute_in_their_own_process_share_one() -> None:
    tests = [
        "unit/core/test_ids.py::test_a",
        "scenario/test_run_stories.py::test_b",
        "unit/test_cli.py::test_c",
    ]
    assert {piece_of(f"tests/{test}") for test in tests} == {ALL_OTHERS}


def test_folders_of_servers_are_folders_of_tests() -> None:
    assert [folder for folder in SERVER_FOLDERS if not (TESTS / folder).is_dir()] == []


def test_what_a_run_has_left_behind_is_ended_and_nothing_of_another_run() -> None:
    left, other = (
        subprocess.Popen(["sleep", "600"], env=os.environ | {"PYTEST_XDIST_TESTRUNUID": run})
        for run in ("this-run", "that-run")
    )
    end_what_is_left("this-run")
    assert left.wait(60) == -signal.SIGTERM
    assert other.poll() is None
    other.kill()
    other.wait(60)
