"""
Native parts of the data plane: copies, the buddy allocator, publication flags.
"""

def copy(target: object, target_offset: int, source: object, source_offset: int, size_bytes: int) -> None:
    """
    Copy bytes between two buffers without the interpreter lock. Raises IndexError outside of them.
    """

def load_flag(buffer: object, offset: int) -> int:
    """Read the 32-bit flag at an offset, with acquire order."""

def publish_flag(buffer: object, offset: int, value: int) -> None:
    """Set a flag with release order and wake all that wait for it."""

def wait_flag(buffer: object, offset: int, value: int, timeout_s: float) -> bool:
    """
    Wait until a flag is at least `value`: True then, False after the timeout.
    """

class BuddyAllocator:
    """
    Divide [0, capacity_bytes) into blocks; the metadata is outside of the region.
    """

    def __init__(self, capacity_bytes: int, min_block_bytes: int = 512) -> None: ...
    def alloc(self, size_bytes: int) -> int | None:
        """
        Return the offset of a new block, or None if no free block is big enough.
        """

    def free(self, offset_bytes: int) -> None:
        """Give a block back. Raises ValueError unless a live block starts there."""

    @property
    def capacity_bytes(self) -> int: ...
    @property
    def min_block_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def live_blocks(self) -> int: ...
    @property
    def largest_free_bytes(self) -> int: ...
