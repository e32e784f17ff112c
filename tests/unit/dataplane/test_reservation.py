"""Every live block has memory; what nobody uses goes back, but for what is kept."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.dataplane._python import BuddyAllocator
from comfyserverless.dataplane.reservation import CHUNK_BYTES, Reservation

KIB = 1 << 10


class Backing:
    """Record which bytes have memory, by KiB; refuses beyond a limit, and to make holes if it cannot."""

    def __init__(self, limit_bytes: int = 1 << 40, *, makes_holes: bool = True) -> None:
        self.present: set[int] = set()
        self.calls: list[tuple[str, int, int]] = []
        self.limit_bytes = limit_bytes
        self._makes_holes = makes_holes

    @property
    def present_bytes(self) -> int:
        return len(self.present) * KIB

    def take(self, offset_bytes: int, size_bytes: int) -> None:
        self.calls.append(("take", offset_bytes, size_bytes))
        wanted = units(offset_bytes, size_bytes)
        assert not wanted & self.present, "taken twice"
        if self.present_bytes + size_bytes > self.limit_bytes:  # all or nothing
            raise OSError(errno.ENOSPC, "No space left on device")
        self.present |= wanted

    def give_back(self, offset_bytes: int, size_bytes: int) -> None:
        self.calls.append(("give back", offset_bytes, size_bytes))
        if not self._makes_holes:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        assert units(offset_bytes, size_bytes) <= self.present
        self.present -= units(offset_bytes, size_bytes)


def units(offset_bytes: int, size_bytes: int) -> set[int]:
    return set(range(offset_bytes // KIB, -(-(offset_bytes + size_bytes) // KIB)))


def chunks_of(offset_bytes: int, size_bytes: int) -> set[int]:
    return set(range(offset_bytes // CHUNK_BYTES, -(-(offset_bytes + size_bytes) // CHUNK_BYTES)))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Draw calls: ("alloc", bytes), ("free", index into what is live) or ("trim", 0)."""
    size = st.one_of(st.integers(1, 5000), st.integers(1, 4 * CHUNK_BYTES))
    call = st.one_of(
        st.tuples(st.just("alloc"), size),
        st.tuples(st.just("free"), st.integers(0, 1 << 20)),
        st.tuples(st.just("trim"), st.just(0)),
    )
    return draw(st.lists(call, max_size=30))


@given(histories(), st.integers(0, 4), st.integers(0, 6), st.integers(1, 12), st.booleans())
def test_live_blocks_always_have_memory_and_little_else_has(
    history: list[tuple[str, int]], kept: int, burst: int, limit_chunks: int, makes_holes: bool
) -> None:
    size_bytes = 11 * CHUNK_BYTES + 4 * KIB  # the last chunk is cut off
    backing = Backing(limit_chunks * CHUNK_BYTES, makes_holes=makes_holes)
    reservation = Reservation(backing, size_bytes, kept * CHUNK_BYTES, burst * CHUNK_BYTES)
    blocks = BuddyAllocator(size_bytes, KIB)
    live: dict[int, int] = {}
    used: set[int] = set()
    for call, number in history:
        if call == "alloc":
            offset = blocks.alloc(number)
            if offset is None:
                continue
            try:
                reservation.reserve(offset, number)
            except OSError:
                blocks.free(offset)
                needed = used | chunks_of(offset, number)
                assert not makes_holes or len(needed) > limit_chunks - 1, "there was room"
                continue
            live[offset] = number
        elif call == "trim":
            reservation.trim()
        elif live:
            offset = sorted(live)[number % len(live)]
            reservation.release(offset, live.pop(offset))
            blocks.free(offset)
        used = set().union(*(chunks_of(*block) for block in live.items()))
        for block in live.items():
            assert units(*block) <= backing.present, "a block without memory is a SIGBUS"
        assert backing.present_bytes <= limit_chunks * CHUNK_BYTES
        assert backing.present_bytes <= reservation.reserved_bytes < backing.present_bytes + CHUNK_BYTES
        if makes_holes:
            assert reservation.reserved_bytes <= (len(used) + max(kept, burst)) * CHUNK_BYTES
    reservation.trim()
    reservation.trim()
    if makes_holes:
        assert reservation.reserved_bytes <= (len(used) + kept) * CHUNK_BYTES


def test_big_block_is_taken_and_given_back_in_one_call_each() -> None:
    backing = Backing()
    reservation = Reservation(backing, 64 * CHUNK_BYTES, kept_bytes=2 * CHUNK_BYTES)
    reservation.reserve(0, 100)
    reservation.reserve(CHUNK_BYTES // 2, 10 * CHUNK_BYTES)
    reservation.release(CHUNK_BYTES // 2, 10 * CHUNK_BYTES)
    assert backing.calls == [
        ("take", 0, CHUNK_BYTES),
        ("take", CHUNK_BYTES, 10 * CHUNK_BYTES),
        ("give back", 3 * CHUNK_BYTES, 8 * CHUNK_BYTES),
    ]


def test_small_blocks_that_come_and_go_ask_for_memory_once() -> None:
    backing = Backing()
    reservation = Reservation(backing, 8 * CHUNK_BYTES, kept_bytes=CHUNK_BYTES)
    for _ in range(10):
        reservation.reserve(512, 4096)
        reservation.release(512, 4096)
    assert backing.calls == [("take", 0, CHUNK_BYTES)]


def test_block_that_cannot_be_reserved_counts_as_never_reserved() -> None:
    backing = Backing(limit_bytes=4 * CHUNK_BYTES)
    reservation = Reservation(backing, 16 * CHUNK_BYTES, kept_bytes=0)
    reservation.reserve(0, CHUNK_BYTES)
    with pytest.raises(OSError, match="No space"):
        reservation.reserve(CHUNK_BYTES, 8 * CHUNK_BYTES)
    reservation.reserve(CHUNK_BYTES, 3 * CHUNK_BYTES)
    reservation.release(CHUNK_BYTES, 3 * CHUNK_BYTES)
    reservation.release(0, CHUNK_BYTES)
    assert backing.present == set()


def test_memory_that_cannot_be_given_back_is_used_again() -> None:
    backing = Backing(makes_holes=False)
    reservation = Reservation(backing, 16 * CHUNK_BYTES, kept_bytes=0)
    for _ in range(3):
        reservation.reserve(0, 4 * CHUNK_BYTES)
        reservation.release(0, 4 * CHUNK_BYTES)
    assert [kind for kind, _, _ in backing.calls].count("take") == 1


def test_memory_of_big_blocks_that_come_and_go_is_taken_once_and_goes_back_when_it_was_idle_for_a_while() -> (
    None
):
    backing = Backing()
    reservation = Reservation(backing, 64 * CHUNK_BYTES, kept_bytes=CHUNK_BYTES, burst_bytes=16 * CHUNK_BYTES)
    for _ in range(3):
        reservation.reserve(0, 16 * CHUNK_BYTES)
        reservation.release(0, 16 * CHUNK_BYTES)
        reservation.trim()
    assert backing.calls == [("take", 0, 16 * CHUNK_BYTES)]
    reservation.trim()
    assert backing.calls[1:] == [("give back", CHUNK_BYTES, 15 * CHUNK_BYTES)]


def test_of_too_much_idle_memory_what_was_idle_before_goes_first() -> None:
    backing = Backing()
    reservation = Reservation(backing, 64 * CHUNK_BYTES, kept_bytes=0, burst_bytes=8 * CHUNK_BYTES)
    reservation.reserve(0, 4 * CHUNK_BYTES)
    reservation.release(0, 4 * CHUNK_BYTES)
    for _ in range(3):
        reservation.reserve(32 * CHUNK_BYTES, 8 * CHUNK_BYTES)
        reservation.release(32 * CHUNK_BYTES, 8 * CHUNK_BYTES)
    assert backing.calls == [
        ("take", 0, 4 * CHUNK_BYTES),
        ("take", 32 * CHUNK_BYTES, 8 * CHUNK_BYTES),
        ("give back", 0, 4 * CHUNK_BYTES),
    ]
