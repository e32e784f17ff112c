"""Check how failures are described for the wire."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import WorkerError
from comfyserverless.worker.failures import format_frames, type_name


def fail() -> None:
    raise WorkerError("output_block_patch pack.broken: 3", "KeyError", ("  File pack.py, line 1, in broken\n",))


def test_frames_that_an_error_brings_follow_its_own() -> None:
    with pytest.raises(WorkerError) as raised:
        fail()
    frames = format_frames(raised.value, "another file")
    assert type_name(raised.value) == "KeyError"
    assert "in fail" in frames[-2]
    assert frames[-1] == "  File pack.py, line 1, in broken\n"
