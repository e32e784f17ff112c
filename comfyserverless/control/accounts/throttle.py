"""Slow down guessing: refuse logins from an address that failed too often lately. Pure; time is given."""

from __future__ import annotations

from collections import OrderedDict, deque

MAX_FAILURES = 10
WINDOW_S = 60.0
_MAX_ADDRESSES = 10_000


class LoginThrottle:
    """Remember the failed logins of the last window, by address. Times are monotonic seconds."""

    def __init__(self) -> None:
        #: address -> when its latest logins failed, at most MAX_FAILURES; least recently failed first.
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """Return how long an address has to wait before its next login is looked at; 0 if not at all."""
        failures = self._failures.get(address)
        if failures is None or len(failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, failures[0] + WINDOW_S - now_s)

    def note_failure(self, address: str, now_s: float) -> None:
        """Count one failed login; of the addresses beyond many thousands the oldest is forgotten."""
        self._failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(now_s)
        self._failures.move_to_end(address)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)
