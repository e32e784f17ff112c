"""Read the server's own log of stays: every call in a lane of a worker once, as its tenant was charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from comfyserverless.bench.fairness.tenant import Caller
from comfyserverless.bench.serving import BenchError

_REMEMBERED = 2000
_LANE = "gpu"


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay in a GPU lane. ended_ms: Unix time."""

    tenant: str
    prompt_id: str
    ended_ms: int
    charged_s: float


class StayReader:
    """Collect stays; the server remembers the last few thousand, so read on before they are forgotten."""

    def __init__(self, operator: Caller) -> None:
        self._operator = operator
        self._newest: dict[str, Any] | None = None
        self.stays: list[Stay] = []

    def read(self) -> None:
        """Add what has ended since the last time, oldest first. Raises BenchError if some were missed."""
        path = f"/usage/invocations?tenant=*&limit={_REMEMBERED}"
        listed = self._operator.call(path)["invocations"]
        fresh: list[dict[str, Any]] = []
        for item in listed:
            if item == self._newest:
                break
            fresh.append(item)
        else:
            if self._newest is not None or len(listed) == _REMEMBERED:
                raise BenchError("the server has forgotten calls before they were read")
        if fresh:
            self._newest = fresh[0]
        self.stays += [
            Stay(item["tenant"], item["prompt_id"], item["ended_ms"], item["charged_s"])
            for item in reversed(fresh)
            if item["lane"] == _LANE
        ]
