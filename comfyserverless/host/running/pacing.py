"""Bound how often packs can tell the same thing: what a person cannot see need not be sent."""

from __future__ import annotations

import threading
import time

_BURST = 200.0
_A_SECOND = 50.0


class Budget:
    """Allow a burst, and then so many a second. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = _BURST
        self._at_s = time.monotonic()

    def take(self, now_s: float | None = None) -> bool:
        """Tell whether one more is allowed now."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            self._left = min(_BURST, self._left + (now_s - self._at_s) * _A_SECOND)
            self._at_s = now_s
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True
