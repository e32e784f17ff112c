"""What reaches the library: which calls, in which order, with which offsets."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from comfyserverless.core.errors import CapacityError, WorkerError
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.nvshmem_arena import FLAGS_OF_A_RANK, NvshmemArena, Place
from comfyserverless.dataplane.nvshmem_library import (
    NvshmemLibrary,
    NvshmemUnavailable,
    find_library,
)
from comfyserverless.dataplane.store import TensorStore
from tests.support.fake_nvshmem import (
    LARGEST_HEAP_BYTES,
    STREAM,
    CmpType,
    Flags,
    HostMemory,
    InitStatus,
    SignalOp,
    World,
)

SIZE_BYTES = 1 << 20
FLAGS_BYTES = 2 * FLAGS_OF_A_RANK * 8
FIXED_BYTES = FLAGS_BYTES + (64 << 10)
SET, STARTED = int(SignalOp.SIGNAL_SET), 3


class Island:
    """Two ranks, and what they called after they were started."""

    def __init__(self) -> None:
        self.world = World(ranks=2)
        self.arenas = [
            NvshmemArena(
                NvshmemLibrary(bindings, HostMemory()), Place("i0", rank, 2), self.world.uid, SIZE_BYTES
            )
            for rank, bindings in enumerate(self.world.ranks)
        ]

    def calls(self, rank: int) -> list[tuple[object, ...]]:
        return self.world.ranks[rank].calls[STARTED:]


@pytest.fixture
def island() -> Iterator[Island]:
    island = Island()
    yield island
    for arena in island.arenas:
        arena.finish()


def test_rank_joins_with_the_uid_then_allocates_once_and_leaves_in_reverse_order() -> None:
    island = Island()
    for rank, bindings in enumerate(island.world.ranks):
        assert bindings.calls == [
            ("set_attr_uniqueid_args", rank, 2),
            ("hostlib_init_attr", int(Flags.INIT_WITH_UNIQUEID)),
            ("calloc", 1, FIXED_BYTES + SIZE_BYTES),
        ]
        island.arenas[rank].finish()
        island.arenas[rank].finish()
        assert bindings.calls[STARTED:] == [("free",), ("hostlib_finalize",)]


def test_close_calls_nothing_that_waits_for_other_ranks(island: Island) -> None:
    island.arenas[0].close()
    assert island.calls(0) == []


def test_tensor_of_a_peer_is_pulled_into_a_block_of_the_reader(island: Island) -> None:
    owner, reader = (TensorStore(WorkerId(f"w{rank}.0"), island.arenas[rank]) for rank in (0, 1))
    reader.add_peer(WorkerId("w0.0"), "nvshmem:i0:0")
    filler = reader.put(torch.zeros(1000, dtype=torch.uint8))  # so that the two offsets differ
    ref = owner.put(torch.arange(300.0))
    assert ref.offset_bytes == FIXED_BYTES
    got = reader.get(ref)
    assert torch.equal(got, torch.arange(300.0))
    assert island.calls(1) == [("getmem_on_stream", FIXED_BYTES + 2048, FIXED_BYTES, 1200, 0, STREAM)]
    assert island.calls(0) == [], "the owner takes no part"
    assert reader.used_bytes == 1024 + 1536
    part = got[5:7]
    del got
    gc.collect()
    assert reader.used_bytes == 1024 + 1536, "while a part of it is used"
    del part
    gc.collect()
    assert reader.used_bytes == 1024
    reader.free([filler.id])
    assert reader.used_bytes == 0


def test_reader_without_room_for_a_peer_s_tensor_says_so(island: Island) -> None:
    owner, reader = (TensorStore(WorkerId(f"w{rank}.0"), island.arenas[rank]) for rank in (0, 1))
    reader.add_peer(WorkerId("w0.0"), "nvshmem:i0:0")
    ref = owner.put(torch.zeros(400_000, dtype=torch.uint8))
    mine = [reader.put(torch.zeros(400_000, dtype=torch.uint8)) for _ in range(2)]
    with pytest.raises(CapacityError, match="arena is full"):
        reader.get(ref)
    reader.free(each.id for each in mine)
    assert not reader.get(ref).any()


def test_flags_of_ranks_do_not_meet_and_are_set_at_every_rank(island: Island) -> None:
    first, second = island.arenas
    flag, other = first.allocate_flag(), second.allocate_flag()
    assert (flag, other) == (0, FLAGS_OF_A_RANK * 8)
    first.publish(flag, 5)
    reset = [("signal_op_on_stream", 0, 0, SET, rank, STREAM) for rank in (0, 1)]
    published = [("signal_op_on_stream", 0, 5, SET, rank, STREAM) for rank in (0, 1)]
    assert island.calls(0) == [*reset, ("quiet_on_stream", STREAM), *published]
    assert second.attach(first.path).load_flag(flag) == 5
    with pytest.raises(ValueError, match="cannot be"):
        first.publish(flag, 0)


def test_flags_run_out_with_a_clear_error(island: Island) -> None:
    for _ in range(FLAGS_OF_A_RANK):
        last = island.arenas[1].allocate_flag()
    assert last == FLAGS_BYTES - 8
    with pytest.raises(CapacityError, match="all 1024 flags"):
        island.arenas[1].allocate_flag()


def test_push_writes_a_block_at_a_peer_and_then_sets_its_flag(island: Island) -> None:
    owner, reader = island.arenas
    flag, source, target = owner.allocate_flag(), owner.allocate(600), reader.allocate(600)
    filler = owner.allocate(600)
    owner.tensor(owner.view(filler, 600)).fill_(9)
    owner.push(1, filler, target, 600, (flag, 3))
    assert island.calls(0)[-1] == (
        "putmem_signal_on_stream", target, filler, 600, flag, 3, SET, 1, STREAM,
    )  # fmt: skip
    assert (reader.tensor(reader.view(target, 600)) == 9).all()
    peer = reader.attach(owner.path)
    assert peer.wait_flag(flag, 3, 1.0)
    peer.wait_on_stream(flag, 3)
    assert island.calls(1) == [("signal_wait_until_on_stream", flag, int(CmpType.CMP_GE), 3, STREAM)]
    assert source != filler


def test_long_read_goes_through_the_scratch_in_parts(island: Island) -> None:
    owner, reader = island.arenas
    size_bytes = (64 << 10) + 100
    offset = owner.allocate(size_bytes)
    owner.tensor(owner.view(offset, size_bytes)).copy_(torch.arange(size_bytes).to(torch.uint8))
    data = reader.attach(owner.path).read(offset, size_bytes)
    assert data == bytes(number % 256 for number in range(size_bytes))
    assert island.calls(1) == [
        ("getmem_on_stream", FLAGS_BYTES, offset, 64 << 10, 0, STREAM),
        ("getmem_on_stream", FLAGS_BYTES, offset + (64 << 10), 100, 0, STREAM),
    ]


def test_peers_are_the_ranks_of_the_same_island(island: Island) -> None:
    assert [arena.path for arena in island.arenas] == ["nvshmem:i0:0", "nvshmem:i0:1"]
    for path in ("nvshmem:i0:2", "nvshmem:i1:0", "/dev/shm/w0.0.arena"):
        with pytest.raises(OSError, match=r"is no arena of island i0"):
            island.arenas[0].attach(path)


def test_waiter_is_told_of_an_owner_that_is_gone(island: Island) -> None:
    owner, reader = (TensorStore(WorkerId(f"w{rank}.0"), island.arenas[rank]) for rank in (0, 1))
    reader.add_peer(WorkerId("w0.0"), "nvshmem:i0:0")
    made = owner.publish(2)
    made.publish(b"a")
    subscription = reader.subscribe(made.ref)
    reader.note_peer_gone(WorkerId("w0.0"))
    assert subscription.element(0, 1.0) == b"a"
    with pytest.raises(WorkerError, match="is gone"):
        subscription.element(1, 20.0)


def test_library_that_refuses_or_has_no_memory_is_unavailable() -> None:
    world = World(ranks=1)
    library = NvshmemLibrary(world.ranks[0], HostMemory())
    with pytest.raises(NvshmemUnavailable, match=r"has no .* bytes of symmetric memory"):
        NvshmemArena(library, Place("i", 0, 1), library.new_uid(), LARGEST_HEAP_BYTES + 1)
    world = World(ranks=1)
    world.ranks[0].refuses = True
    with pytest.raises(NvshmemUnavailable, match="does not start: status 7"):
        NvshmemArena(NvshmemLibrary(world.ranks[0], HostMemory()), Place("i", 0, 1), world.uid, SIZE_BYTES)
    world = World(ranks=1)
    world.ranks[0].status = InitStatus.STATUS_IS_BOOTSTRAPPED
    with pytest.raises(NvshmemUnavailable, match="its device cannot be used"):
        NvshmemArena(NvshmemLibrary(world.ranks[0], HostMemory()), Place("i", 0, 1), world.uid, SIZE_BYTES)
    with pytest.raises(ValueError, match="128 bytes, not 3"):
        library.start(b"abc", 0, 1)


def test_machine_without_a_gpu_says_so() -> None:
    with pytest.raises(NvshmemUnavailable, match="there is no GPU"):
        find_library(torch.device("cpu"))
