"""State what every kind of arena must do, as checks of an owner's arena and a reader's.

Unit tests run all of them on shared memory and on NVSHMEM with its library replaced; the GPU tests run the same
on the real library. owner and reader may be the same arena (one worker alone).
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest
import torch

from comfyserverless.core.errors import CapacityError, NoRoomError, WorkerError
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.arena import ALIGNMENT_BYTES, Block, LocalArena, PeerArena
from comfyserverless.dataplane.publication import wait
from comfyserverless.dataplane.store import TensorStore

Check = Callable[[LocalArena, LocalArena], None]

LEAST_BYTES = 4 << 20
"""How big the arenas must be."""

_OWNER, _READER = WorkerId("w0.0"), WorkerId("w1.0")


def _fill(arena: LocalArena, size_bytes: int) -> tuple[int, torch.Tensor]:
    """Return a new block's offset, and what was written there (on the host)."""
    offset_bytes = arena.allocate(size_bytes)
    data = torch.randint(0, 256, (size_bytes,), dtype=torch.uint8)
    arena.tensor(arena.view(offset_bytes, size_bytes)).copy_(data)
    arena.flush()
    return offset_bytes, data


def _landing(arena: LocalArena, size_bytes: int) -> Block:
    return arena.view(arena.allocate(size_bytes), size_bytes)


def _read(arena: LocalArena, peer: PeerArena, offset_bytes: int, size_bytes: int) -> torch.Tensor:
    block = _landing(arena, size_bytes)
    peer.read_into(block, offset_bytes, size_bytes)
    arena.flush()
    return arena.tensor(block).cpu()


def check_peer_reads_what_the_owner_wrote(owner: LocalArena, reader: LocalArena) -> None:
    first, second = _fill(owner, 1000), _fill(owner, 70_001)
    peer = reader.attach(owner.path)
    for offset_bytes, data in (second, first):
        assert torch.equal(_read(reader, peer, offset_bytes, len(data)), data)
        assert torch.equal(_read(reader, peer, offset_bytes + 7, 100), data[7:107])
        assert peer.read(offset_bytes + 3, 20) == bytes(data[3:23].tolist())
    peer.close()


def check_peer_refuses_ranges_outside_and_use_after_close(owner: LocalArena, reader: LocalArena) -> None:
    peer = reader.attach(owner.path)
    target = _landing(reader, 4096)
    for offset_bytes, size_bytes in ((owner.size_bytes - 100, 101), (0, 4097), (owner.size_bytes + 1, 1)):
        with pytest.raises(IndexError):
            peer.read_into(target, offset_bytes, size_bytes)
    peer.close()
    for call in (lambda: peer.read_into(target, 0, 1), lambda: peer.read(0, 1), lambda: peer.load_flag(0)):
        with pytest.raises(ValueError, match="closed"):
            call()


def check_unknown_peer_is_an_os_error(owner: LocalArena, reader: LocalArena) -> None:
    with pytest.raises(OSError, match="nowhere"):
        reader.attach(f"{owner.path}/nowhere")


def check_blocks_are_aligned_and_do_not_overlap(owner: LocalArena, reader: LocalArena) -> None:
    before = owner.used_bytes
    blocks = {owner.allocate(size_bytes): size_bytes for size_bytes in (1, 513, 4096, 100_000, 7)}
    end = 0
    for offset_bytes in sorted(blocks):
        assert offset_bytes % ALIGNMENT_BYTES == 0
        assert offset_bytes >= end
        end = offset_bytes + blocks[offset_bytes]
    assert owner.used_bytes - before >= sum(blocks.values())
    for offset_bytes in blocks:
        owner.release(offset_bytes)
    assert owner.used_bytes == before
    with pytest.raises(ValueError, match="no live block"):
        owner.release(offset_bytes)


def check_full_arena_names_the_sizes_and_recovers(owner: LocalArena, reader: LocalArena) -> None:
    with pytest.raises(CapacityError, match="allow more") as caught:
        owner.allocate(owner.size_bytes + 1)
    assert not isinstance(caught.value, NoRoomError), "it will never fit"
    held = owner.allocate(512)
    with pytest.raises(NoRoomError, match=rf"arena is full.* of {owner.size_bytes} bytes are in use"):
        owner.allocate(owner.size_bytes)
    owner.release(held)
    owner.release(owner.allocate(1 << 20))


def check_block_lives_as_long_as_a_tensor_of_it(owner: LocalArena, reader: LocalArena) -> None:
    block = owner.view(owner.allocate(64), 64)
    is_there = weakref.ref(block)
    tensor = owner.tensor(block)[8:].view(torch.int32)
    assert tensor.device == owner.device
    del block
    gc.collect()
    assert is_there() is not None
    del tensor
    gc.collect()
    assert is_there() is None


def check_flag_starts_at_zero_and_is_seen_by_peers(owner: LocalArena, reader: LocalArena) -> None:
    peer = reader.attach(owner.path)
    one, two = owner.allocate_flag(), owner.allocate_flag()
    assert (peer.load_flag(one), peer.load_flag(two)) == (0, 0)
    assert not peer.wait_flag(one, 1, 0.01)
    owner.publish(one, 3)
    assert peer.wait_flag(one, 2, 5.0)
    assert (peer.load_flag(one), peer.load_flag(two)) == (3, 0)
    owner.release_flag(one)
    again = owner.allocate_flag()
    assert peer.load_flag(again) == 0, "a flag that is used again starts anew"
    for flag in (two, again):
        owner.release_flag(flag)
    with pytest.raises(ValueError, match="no live"):
        owner.release_flag(two)
    peer.close()


def check_flag_wakes_a_waiter(owner: LocalArena, reader: LocalArena) -> None:
    peer, flag = reader.attach(owner.path), owner.allocate_flag()
    seen: list[int] = []
    waiter = threading.Thread(target=lambda: seen.append(wait(peer, flag, 2, 20.0)))
    waiter.start()
    owner.publish(flag, 1)
    owner.publish(flag, 2)
    waiter.join(20.0)
    assert seen == [2]
    owner.release_flag(flag)
    peer.close()


def check_what_was_written_before_a_flag_is_there_after_it(owner: LocalArena, reader: LocalArena) -> None:
    peer, flag, offset_bytes = reader.attach(owner.path), owner.allocate_flag(), owner.allocate(64 * 8)
    for number in range(8):
        owner.write(offset_bytes + 64 * number, bytes([number + 1]) * 64)
        owner.publish(flag, number + 1)
        assert wait(peer, flag, number + 1, 5.0) == number + 1
        assert peer.read(offset_bytes + 64 * number, 64) == bytes([number + 1]) * 64
    owner.release_flag(flag)
    peer.close()


def check_wait_for_an_owner_that_is_gone_ends(owner: LocalArena, reader: LocalArena) -> None:
    peer, flag = reader.attach(owner.path), owner.allocate_flag()
    peer.close()
    with pytest.raises(WorkerError, match="producer of a published result is gone"):
        wait(peer, flag, 1, 20.0)
    owner.release_flag(flag)


def check_store_moves_tensors_of_every_kind(owner: LocalArena, reader: LocalArena) -> None:
    stores = TensorStore(_OWNER, owner), TensorStore(_READER, reader)
    stores[1].add_peer(_OWNER, owner.path)
    before = owner.used_bytes, reader.used_bytes
    refs = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
        tensor = (torch.rand(3, 5, 7) * 3).to(dtype)
        refs.append(stores[0].put(tensor.permute(2, 0, 1)))
        for store in stores:
            back = store.get(refs[-1])
            assert back.device == owner.device
            assert torch.equal(back.cpu(), tensor.permute(2, 0, 1))
    hosted, _ = stores[1].get_tree({"x": refs[0]}, on_host=True)
    assert hosted["x"].device.type == "cpu"
    del back, hosted
    gc.collect()
    stores[0].free(ref.id for ref in refs)
    for store in stores:
        store.trim()
    assert (owner.used_bytes, reader.used_bytes) == before
    stores[1].remove_peer(_OWNER)


def check_publication_hands_over_tensors_one_by_one(owner: LocalArena, reader: LocalArena) -> None:
    from comfyserverless.core import values

    producer, consumer = TensorStore(_OWNER, owner), TensorStore(_READER, reader)
    consumer.add_peer(_OWNER, owner.path)
    before = owner.used_bytes, reader.used_bytes
    publication = producer.publish(elements=3)
    subscription = consumer.subscribe(publication.ref)
    made, ids = [torch.full((4, 50), float(number)) for number in range(3)], [publication.ref.id]
    for number, tensor in enumerate(made):
        assert subscription.published() == number
        ref = producer.put(tensor)
        ids.append(ref.id)
        publication.publish(values.encode([ref]))
        [got] = consumer.get_tree(values.decode(subscription.element(number, 5.0)))[0]
        assert torch.equal(got.cpu(), tensor)
    publication.finish()
    del got
    gc.collect()
    producer.free(ids)
    consumer.trim()
    assert (owner.used_bytes, reader.used_bytes) == before
    consumer.remove_peer(_OWNER)


CHECKS: tuple[Check, ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)
