"""Check the figures of the measurement of loads."""

from __future__ import annotations

import pytest

from comfyserverless.bench.load import summary


def test_cases_are_compared_by_their_fastest_rounds() -> None:
    seconds = {
        "serial": [11.0, 15.0],
        "pipelined": [9.0, 6.0],
        "prefix": [5.0, 1.1],
        "half_prefix": [4.0, 9.0],
        "resident": [1.0, 3.0],
    }
    figures = summary(seconds)
    assert figures["exposed_vs_pipelined"] == pytest.approx(0.02)
    assert figures["vs_resident"] == pytest.approx(1.1)
    assert figures["half_prefix_saves"] == pytest.approx(0.7)
    assert figures["emulated_link"] is True
