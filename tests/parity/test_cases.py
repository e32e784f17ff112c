"""Run ComfyUI's recorded cases through the real server and compare latents and images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.client import Client
from tests.support.parity import INPUTS, Comparison, case_names, compare
from tests.support.server import RunningServer

RESULTS: dict[str, list[Comparison]] = {}


@pytest.fixture(scope="module")
def parity_server(server: RunningServer) -> Iterator[RunningServer]:
    for path in INPUTS.iterdir():
        shutil.copy(path, server.folder("input") / path.name)
    yield server
    _print_report()


def _print_report() -> None:
    """Print how many cases are bit-identical; the figure is part of what a change is judged by."""
    identical = [case for case, found in RESULTS.items() if all(each.is_identical for each in found)]
    others = sorted(set(RESULTS) - set(identical))
    print(f"\nparity: {len(identical)} of {len(RESULTS)} cases are bit-identical")  # noqa: T201
    for case in others:
        worst = max(each.difference for each in RESULTS[case])
        print(f"  not identical: {case}, largest difference {worst:.3g} of the bar")  # noqa: T201


@pytest.mark.parametrize("case", case_names())
async def test_case_equals_the_recorded_result(parity_server: RunningServer, case: str) -> None:
    async with Client(parity_server.url) as client:
        found = await compare(client, case)
    RESULTS[case] = found
    assert found, "the case has no recorded output"
    assert [each for each in found if each.difference > 1.0] == []
