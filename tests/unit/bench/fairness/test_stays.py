"""Reading a log that goes on, newest first, and forgets."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.bench.fairness.stays import StayReader
from comfyserverless.bench.fairness.tenant import Caller
from comfyserverless.bench.serving import BenchError


class Log(Caller):
    """A server's log of stays, which remembers 2000."""

    def __init__(self) -> None:
        super().__init__("http://nowhere", "token")
        self.items: list[dict[str, Any]] = []

    def add(self, *names: str, lane: str = "gpu") -> None:
        for name in names:
            number = len(self.items)
            item = {"tenant": name, "prompt_id": "p", "lane": lane, "ended_ms": number, "charged_s": 0.5}
            self.items.append(item)

    def call(self, path: str, body: Any = None) -> Any:
        assert path == "/usage/invocations?tenant=*&limit=2000"
        return {"invocations": self.items[:-2001:-1]}


def test_stays_are_read_once_and_in_order() -> None:
    log = Log()
    reader = StayReader(log)
    reader.read()
    for names in (("a", "b"), (), ("c",), ("d", "a")):
        log.add(*names)
        reader.read()
    assert [stay.tenant for stay in reader.stays] == ["a", "b", "c", "d", "a"]


def test_other_lanes_do_not_count() -> None:
    log = Log()
    log.add("a")
    log.add("b", lane="cpu")
    reader = StayReader(log)
    reader.read()
    log.add("c")
    reader.read()
    assert [stay.tenant for stay in reader.stays] == ["a", "c"]


def test_a_gap_is_noticed() -> None:
    log = Log()
    log.add("a")
    reader = StayReader(log)
    reader.read()
    log.add(*["b"] * 2000)
    with pytest.raises(BenchError, match="forgotten"):
        reader.read()
