"""The native parts and their Python twins give identical results."""

from __future__ import annotations

import ast
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.dataplane import _python

native = pytest.importorskip("comfyserverless._native", reason="the native extension was not built")

BOTH = pytest.mark.parametrize("parts", [native, _python], ids=["native", "python"])
STUB = Path(__file__).parents[2] / "comfyserverless" / "_native.pyi"


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Draw calls: ("alloc", bytes) or ("free", index into what is live)."""
    call = st.one_of(
        st.tuples(st.just("alloc"), st.integers(0, 40_000)),
        st.tuples(st.just("free"), st.integers(0, 1 << 30)),
    )
    return draw(st.lists(call, max_size=120))


@given(histories(), st.integers(1, 300), st.sampled_from([256, 512, 4096]))
def test_allocators_agree_and_keep_their_laws(history: list[tuple[str, int]], units: int, block: int) -> None:
    ours = native.BuddyAllocator(units * block, block)
    twin = _python.BuddyAllocator(units * block, block)
    live: dict[int, int] = {}
    for call, number in history:
        if call == "alloc":
            offset = ours.alloc(number)
            assert offset == twin.alloc(number)
            if offset is None:
                continue
            end = offset + max(number, 1)
            assert offset % block == 0
            assert end <= units * block
            assert all(end <= start or offset >= stop for start, stop in live.items()), "blocks overlap"
            live[offset] = end
        elif live:
            offset = sorted(live)[number % len(live)]
            ours.free(offset)
            twin.free(offset)
            del live[offset]
        assert ours.used_bytes == twin.used_bytes
        assert ours.largest_free_bytes == twin.largest_free_bytes
        assert ours.live_blocks == twin.live_blocks == len(live)
    empty = native.BuddyAllocator(units * block, block)
    for offset in live:
        ours.free(offset)
        twin.free(offset)
    assert ours.used_bytes == twin.used_bytes == 0
    assert ours.largest_free_bytes == twin.largest_free_bytes == empty.largest_free_bytes


@BOTH
def test_allocator_costs_a_request_its_size_rounded_up(parts: ModuleType) -> None:
    allocator = parts.BuddyAllocator(1 << 20, 512)
    allocator.alloc(300_000)
    assert allocator.used_bytes == 300_032
    assert allocator.alloc(700_000) is None
    assert allocator.alloc(500_000) is not None


@BOTH
def test_allocator_refuses_a_double_free(parts: ModuleType) -> None:
    allocator = parts.BuddyAllocator(4096)
    offset = allocator.alloc(100)
    allocator.free(offset)
    with pytest.raises(ValueError, match="no live block starts at offset 0"):
        allocator.free(offset)
    with pytest.raises(ValueError, match="offset 7"):
        allocator.free(7)


@BOTH
@pytest.mark.parametrize(("capacity", "block"), [(0, 512), (1000, 512), (4096, 48)])
def test_allocator_refuses_odd_sizes(parts: ModuleType, capacity: int, block: int) -> None:
    with pytest.raises(ValueError, match="must be a"):
        parts.BuddyAllocator(capacity, block)


@BOTH
@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
def test_copy_moves_a_range_between_buffers(parts: ModuleType, size: int) -> None:
    source = os.urandom(size + 7)
    target = bytearray(size + 5)
    parts.copy(target, 3, source, 6, size)
    assert target == bytes(3) + source[6 : 6 + size] + bytes(2)


@BOTH
def test_copy_refuses_ranges_outside_and_read_only_targets(parts: ModuleType) -> None:
    with pytest.raises(IndexError):
        parts.copy(bytearray(4), 2, bytes(4), 0, 3)
    with pytest.raises(IndexError):
        parts.copy(bytearray(4), 0, bytes(4), 5, 0)
    with pytest.raises(BufferError):
        parts.copy(bytes(4), 0, bytes(4), 0, 4)


@BOTH
def test_flag_wakes_a_waiter_that_maps_the_memory_read_only(parts: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_bytes(bytes(4096))
    with file.open("r+b") as opened:
        writable = mmap.mmap(opened.fileno(), 4096)
        readable = mmap.mmap(opened.fileno(), 4096, prot=mmap.PROT_READ)
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(parts.wait_flag(readable, 64, 2, 60.0)))
    waiter.start()
    parts.publish_flag(writable, 64, 1)
    parts.publish_flag(writable, 64, 2)
    waiter.join(60.0)
    assert seen == [True]
    assert parts.load_flag(readable, 64) == 2


@BOTH
def test_flag_wait_ends_after_its_timeout(parts: ModuleType) -> None:
    assert not parts.wait_flag(bytes(8), 4, 1, 0.01)


@BOTH
def test_flag_refuses_an_unaligned_word(parts: ModuleType) -> None:
    with pytest.raises(ValueError, match="aligned"):
        parts.load_flag(bytearray(16), 1)


def test_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    fresh = tmp_path / "_native.pyi"
    command = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-q",
        "-m",
        "comfyserverless._native",
        "-o",
        str(fresh),
    ]
    pytest.importorskip("nanobind")
    subprocess.run(command, check=True)
    assert _shape(fresh) == _shape(STUB)


def _shape(stub: Path) -> str:
    """Return a stub's syntax without formatting, docstrings included but for their indentation."""
    tree = ast.parse(stub.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = " ".join(node.value.split())
    return ast.dump(tree)


def test_interpreter_ends_without_leaks() -> None:
    program = """if True:
        from comfyserverless import _native
        blocks = _native.BuddyAllocator(4096)
        blocks.free(blocks.alloc(1))
        flag = bytearray(8)
        _native.publish_flag(flag, 0, 1)
        assert _native.wait_flag(flag, 0, 1, 1.0)
        _native.copy(flag, 4, flag, 0, 4)
    """
    environment = {**os.environ, "COMFYSERVERLESS_LEAK_CHECK": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == ""
