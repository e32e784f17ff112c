"""Let tests of the control process wait for a disk, however slow it is."""

from __future__ import annotations

import pytest

from comfyserverless.control.records import store


@pytest.fixture(autouse=True)
def patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers wait for what was noted before them: it can take longer than a server waits."""
    monkeypatch.setattr(store, "_READ_PATIENCE_S", 60.0)
