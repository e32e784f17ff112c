"""A file system that is really full is a CapacityError in the worker, and never its death by SIGBUS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Asks for far more than the file system has; what was written must still be there when it is freed.
PROGRAM = """
import os, random, sys
from comfyserverless.core.errors import CapacityError
from comfyserverless.dataplane.shared_memory import SharedMemoryArena

arena = SharedMemoryArena(os.path.join(sys.argv[1], "arena"), 512 << 20)
draw, live, refused, largest_bytes = random.Random(1), {}, 0, 0
for step in range(1500):
    if live and draw.random() < 0.45:
        offset = draw.choice(list(live))
        size, value = live.pop(offset)
        assert (arena.view(offset, size) == value).all()
        arena.release(offset)
    else:
        size, value = draw.choice([draw.randint(1, 5000), draw.randint(1, 6 << 20)]), draw.randint(1, 255)
        try:
            offset = arena.allocate(size)
        except CapacityError:
            refused += 1
            continue
        arena.view(offset, size)[:] = value
        live[offset] = size, value
    if step % 50 == 0:
        arena.trim()
    largest_bytes = max(largest_bytes, sum(size for size, _ in live.values()))
assert refused > 50, refused
assert largest_bytes > 16 << 20, "it was nearly full at times"
print("survived")
"""

MOUNT = 'mount -t tmpfs -o size=32M none "$1" && exec "$2" -c "$3" "$1"'


def test_arena_survives_a_file_system_that_is_full(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    own_mounts = [unshare or "unshare", "--user", "--map-root-user", "--mount"]
    if unshare is None or subprocess.run([*own_mounts, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a user mount a file system of its own")
    command = [*own_mounts, "bash", "-c", MOUNT, "bash", str(tmp_path), sys.executable, PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "survived"), done.stderr
