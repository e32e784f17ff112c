"""Keep an arena in the memory of a GPU, which peers of the same island read over NVLink or PCIe.

An island is a group of workers that start together; each has a rank. All allocate one region of the same
size, at once; offsets are then valid at every rank, and each divides its own region by itself. At the start of
every region are the flags: as many for each rank, at the same place everywhere. Publishing sets the flag
at every rank, so that waiting for it is reading one's own memory.

    | flags of rank 0 | flags of rank 1 | ... | scratch | blocks ...

A world can neither be joined nor left while it lives: when a rank dies, one-sided reads between the others go
on, but the island must be started anew as a whole (the control process sees to that).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import torch

from comfyserverless.core.errors import NoRoomError
from comfyserverless.dataplane import _fast
from comfyserverless.dataplane.arena import ALIGNMENT_BYTES, LARGEST_FLAG, Block, LocalArena, PeerArena, no_room
from comfyserverless.dataplane.nvshmem_library import DeviceBlock, NvshmemLibrary

FLAGS_OF_A_RANK = 1024
_FLAG_BYTES = 8
_RANK_BYTES = FLAGS_OF_A_RANK * _FLAG_BYTES
_SCRATCH_BYTES = 64 << 10
_POLL_S = 0.0002


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is: rank 0 <= rank < ranks of the island of this name."""

    island: str
    rank: int
    ranks: int

    def path_of(self, rank: int) -> str:
        """Return what peers attach a rank's arena by."""
        return f"nvshmem:{self.island}:{rank}"

    @property
    def fixed_bytes(self) -> int:
        """Return how much of the region is flags and scratch."""
        return self.ranks * _RANK_BYTES + _SCRATCH_BYTES


class NvshmemArena(LocalArena):
    """Own one rank's region. Making it is collective, and so is `finish`.

    size_bytes: for blocks, rounded up to whole alignment units; the same at every rank. The region has the
    flags and the scratch besides. Raises NvshmemUnavailable if the library refuses or has too little memory.
    """

    reads_into_arena = True

    def __init__(self, library: NvshmemLibrary, place: Place, uid: bytes, size_bytes: int) -> None:
        self.path = place.path_of(place.rank)
        block_bytes = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.size_bytes = place.fixed_bytes + block_bytes
        self.device = library.memory.device
        self.library = library
        self.place = place
        self._blocks = _fast.BuddyAllocator(block_bytes, ALIGNMENT_BYTES)
        self._flags = _fast.BuddyAllocator(_RANK_BYTES, _FLAG_BYTES)
        self._scratch_lock = threading.Lock()
        library.start(uid, place.rank, place.ranks)
        self._base = library.allocate(self.size_bytes)
        self.device_bytes = self.size_bytes  # the region is the GPU's, as weights are

    def allocate(self, size_bytes: int) -> int:
        """See LocalArena."""
        offset_bytes = self._blocks.alloc(size_bytes)
        if offset_bytes is None:
            raise no_room(self, size_bytes, self._blocks.largest_free_bytes)
        return offset_bytes + self.place.fixed_bytes

    def release(self, offset_bytes: int) -> None:
        """See LocalArena."""
        self._blocks.free(offset_bytes - self.place.fixed_bytes)

    def view(self, offset_bytes: int, size_bytes: int) -> DeviceBlock:
        """See LocalArena."""
        return DeviceBlock(self.address(offset_bytes, size_bytes), size_bytes, self)

    def tensor(self, block: Block) -> torch.Tensor:
        """See LocalArena."""
        return self.library.memory.tensor(block)

    def write(self, offset_bytes: int, data: bytes) -> None:
        """See LocalArena; in the order of the calling thread's stream."""
        if data:
            host = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            self.tensor(self.view(offset_bytes, len(data))).copy_(host)

    def flush(self) -> None:
        """See LocalArena."""
        self.library.memory.synchronize()

    def allocate_flag(self) -> int:
        """See LocalArena."""
        found = self._flags.alloc(_FLAG_BYTES)
        if found is None:
            raise NoRoomError(f"all {FLAGS_OF_A_RANK} flags of this worker are in use")
        flag_bytes = self.place.rank * _RANK_BYTES + found
        self._set(flag_bytes, 0)
        self.library.quiet()  # a peer that is told of this flag must not see what it was before
        return flag_bytes

    def release_flag(self, offset_bytes: int) -> None:
        """See LocalArena."""
        self._flags.free(offset_bytes - self.place.rank * _RANK_BYTES)

    def publish(self, flag_bytes: int, value: int) -> None:
        """See LocalArena; in the order of the calling thread's stream."""
        if not 0 < value <= LARGEST_FLAG:
            raise ValueError(f"a flag cannot be {value}")
        self._set(flag_bytes, value)

    def push(
        self, rank: int, offset_bytes: int, target_bytes: int, size_bytes: int, flag: tuple[int, int]
    ) -> None:
        """Write a block into a peer's region and then set its flag: (offset, value).

        For a target that the peer has allocated and told of. Only that peer sees the flag.
        """
        flag_bytes, value = flag
        target = self.address(target_bytes, size_bytes)
        signal = (self.address(flag_bytes, _FLAG_BYTES), value)
        self.library.put_signal(target, self.address(offset_bytes, size_bytes), size_bytes, signal, rank)

    def attach(self, path: str) -> NvshmemPeer:
        """See LocalArena: peers are the ranks of the same island."""
        for rank in range(self.place.ranks):
            if path == self.place.path_of(rank):
                return NvshmemPeer(self, rank)
        raise OSError(f"{path} is no arena of island {self.place.island}")

    @property
    def used_bytes(self) -> int:
        """See LocalArena."""
        return self._blocks.used_bytes

    @property
    def live_blocks(self) -> int:
        """See LocalArena."""
        return self._blocks.live_blocks

    @property
    def largest_free_bytes(self) -> int:
        """See LocalArena."""
        return self._blocks.largest_free_bytes

    def close(self) -> None:
        """See LocalArena. Not collective, so that a dead peer cannot hang it; memory goes with the process."""

    def finish(self) -> None:
        """Free the region and leave the world, with all ranks. No tensor of it may be used any more."""
        base, self._base = self._base, 0
        if base:
            self.library.stop(base)

    def address(self, offset_bytes: int, size_bytes: int) -> int:
        """Return the address of a range. Raises IndexError outside of the region, ValueError after `finish`."""
        if not self._base:
            raise ValueError("the arena is closed")
        if not (0 <= offset_bytes <= self.size_bytes and 0 <= size_bytes <= self.size_bytes - offset_bytes):
            raise IndexError("range is outside of the region")
        return self._base + offset_bytes

    def read_from(self, rank: int, offset_bytes: int, size_bytes: int) -> bytes:
        """Return a few bytes of a rank's region, by way of the scratch of this one."""
        parts, scratch_bytes = [], self.place.ranks * _RANK_BYTES
        while size_bytes > 0:
            part_bytes = min(size_bytes, _SCRATCH_BYTES)
            source = self.address(offset_bytes, part_bytes)
            with self._scratch_lock:
                scratch = self.view(scratch_bytes, part_bytes)
                self.library.get(scratch.address, source, part_bytes, rank)
                parts.append(self.tensor(scratch).cpu().numpy().tobytes())
            offset_bytes, size_bytes = offset_bytes + part_bytes, size_bytes - part_bytes
        return b"".join(parts)

    def _set(self, flag_bytes: int, value: int) -> None:
        self.library.set_signal(self.address(flag_bytes, _FLAG_BYTES), value, range(self.place.ranks))


class NvshmemPeer(PeerArena):
    """Read the region of a rank. What it publishes is waited for in the memory of this one."""

    def __init__(self, own: NvshmemArena, rank: int) -> None:
        self.path = own.place.path_of(rank)
        self._arena: NvshmemArena | None = own
        self._rank = rank
        self._is_owner_gone = False

    def read_into(self, target: Block, offset_bytes: int, size_bytes: int) -> None:
        """See PeerArena; target: a block of the reader's arena. In the order of the calling thread's stream."""
        own = self._own()
        if size_bytes > target.size_bytes:
            raise IndexError("range is bigger than the target")
        own.library.get(target.address, own.address(offset_bytes, size_bytes), size_bytes, self._rank)

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """See PeerArena; waits for the stream."""
        return self._own().read_from(self._rank, offset_bytes, size_bytes)

    def load_flag(self, flag_bytes: int) -> int:
        """See PeerArena."""
        own = self._own()
        return own.library.load_signal(own.address(flag_bytes, _FLAG_BYTES))

    def wait_flag(self, flag_bytes: int, value: int, timeout_s: float) -> bool:
        """See PeerArena; looks at the flag again and again."""
        deadline_s = time.monotonic() + timeout_s
        while self.load_flag(flag_bytes) < value:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def wait_on_stream(self, flag_bytes: int, value: int) -> None:
        """Let the calling thread's stream wait for a flag; a producer that dies hangs it for ever."""
        own = self._own()
        own.library.wait_signal(own.address(flag_bytes, _FLAG_BYTES), value)

    def note_owner_gone(self) -> None:
        """See PeerArena."""
        self._is_owner_gone = True

    def is_owner_alive(self) -> bool:
        """See PeerArena: what is known is what was told."""
        return self._arena is not None and not self._is_owner_gone

    def close(self) -> None:
        """See PeerArena."""
        self._arena = None

    def _own(self) -> NvshmemArena:
        if self._arena is None:
            raise ValueError("the peer's arena is closed")
        return self._arena
