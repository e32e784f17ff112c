"""What absent clients missed is kept for a while, within bounds, and told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.reconnects import missed
from comfyserverless.server.reconnects.missed import Entry, Missed

TENANT = TenantId("t")
ME = (TENANT, "me")
RUN = PromptId("r")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_only_clients_that_left_have_something_kept_and_get_it_once() -> None:
    kept = Missed(Clock())
    kept.keep(ME, Entry("early", run=RUN))
    kept.leave(ME, [Entry("unsent", run=RUN), Entry("progress", is_droppable=True, run=RUN), Entry("status")])
    kept.keep(ME, Entry("late", run=RUN))
    assert [entry.frame for entry in kept.take(ME)] == ["unsent", "late"]
    assert kept.take(ME) == []
    assert not kept.is_away(ME)
    assert kept.waiting_bytes == 0


def test_absence_ends_after_a_while() -> None:
    clock = Clock()
    kept = Missed(clock)
    kept.leave(ME, [Entry("old", run=RUN)])
    clock.now_s = missed.KEPT_S + 1
    kept.leave((TENANT, "other"), [])
    assert not kept.is_away(ME)
    kept.leave(ME, [Entry("old", run=RUN)])
    clock.now_s *= 2.1
    assert kept.take(ME) == []


def test_oldest_messages_of_a_client_and_oldest_clients_are_forgotten_beyond_the_limits() -> None:
    kept = Missed(Clock())
    half = "x" * (missed.MAX_CLIENT_BYTES // 2)
    kept.leave(ME, [Entry(mark + half[1:], run=RUN) for mark in "abc"])
    assert [entry.frame[0] for entry in kept.take(ME)] == ["b", "c"]
    for number in range(missed.MAX_CLIENTS + 5):
        kept.leave((TENANT, str(number)), [])
    assert not kept.is_away((TENANT, "4"))
    assert kept.is_away((TENANT, "5"))
    clients = [(TENANT, f"big{number}") for number in range(missed.MAX_BYTES // missed.MAX_CLIENT_BYTES + 3)]
    for client in clients:
        kept.leave(client, [Entry(half, run=RUN), Entry(half, run=RUN)])
    assert kept.waiting_bytes <= missed.MAX_BYTES
    assert kept.is_away(clients[-1])
    assert not kept.is_away(clients[0])


def test_clients_of_a_tenant_that_ended_are_forgotten() -> None:
    kept = Missed(Clock())
    other = (TenantId("other"), "me")
    for client in (ME, other):
        kept.leave(client, [Entry("x", run=RUN)])
    kept.forget(TENANT)
    assert kept.take(ME) == []
    assert [entry.frame for entry in kept.take(other)] == ["x"]


@given(st.lists(st.tuples(st.sampled_from(["leave", "keep", "take"]), st.integers(0, 3), st.integers(0, 50))))
def test_bytes_are_counted_as_they_come_and_go(events: list[tuple[str, int, int]]) -> None:
    kept = Missed(Clock())
    expected: dict[int, int] = {}
    for action, number, size_bytes in events:
        client, entry = (TENANT, str(number)), Entry("x" * size_bytes, run=RUN)
        if action == "leave":
            kept.leave(client, [entry])
            expected[number] = size_bytes
        elif action == "keep":
            kept.keep(client, entry)
            if number in expected:
                expected[number] += size_bytes
        else:
            kept.take(client)
            expected.pop(number, None)
        assert kept.waiting_bytes == sum(expected.values())
