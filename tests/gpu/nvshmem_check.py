"""Prove NVSHMEM arenas on one GPU: one rank, then two ranks on it. Takes about a minute.

    python tests/gpu/nvshmem_check.py            both; prints what it measured, exit code 0 if all is well

Needs a CUDA build of torch and the extra `nvshmem`. Each rank is a process; one that hangs is killed in time.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from comfyserverless.dataplane.nvshmem_arena import NvshmemArena, Place  # noqa: E402
from comfyserverless.dataplane.nvshmem_library import NvshmemUnavailable, find_library  # noqa: E402
from tests.gpu.nvshmem_ranks import Desk, be_alone, consume, produce  # noqa: E402

ARENA_BYTES = 1 << 30
PATIENCE_S = 60.0
LIMIT_S = 90.0


def problem() -> str:
    """Return why nothing can be proved here, empty if it can."""
    if not torch.cuda.is_available():
        return "needs a CUDA device"
    try:
        find_library(torch.device("cuda", 0))
    except NvshmemUnavailable as exc:
        return str(exc)
    return ""


def run_ranks(ranks: int) -> dict[str, float]:
    """Run an island of one or two ranks on the first GPU and return what it measured.

    Raises AssertionError with the output of the rank that failed.
    """
    shared_before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder), PATIENCE_S)
        processes = [_start(rank, ranks, Path(folder)) for rank in range(ranks)]
        try:
            if ranks == 2:
                _wait_for(desk, "produced", processes)
                processes[0].kill()
                processes[0].wait()
                desk.leave("rank 0 is gone", True)
            code = processes[-1].wait(LIMIT_S)
            assert code == 0, _outputs(Path(folder), ranks)
            measured: dict[str, float] = desk.find("measured")
        finally:
            for process in processes:
                process.kill()
                process.wait()
    left = sorted(set(os.listdir("/dev/shm")) - shared_before)
    assert not left, f"files left in shared memory: {left}"
    return measured


def _start(rank: int, ranks: int, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, str(rank), str(ranks), str(folder)]
    with (folder / f"output {rank}").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)


def _wait_for(desk: Desk, note: str, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not (desk.folder / note).exists():
        is_over = time.monotonic() > deadline_s or any(each.poll() is not None for each in processes)
        assert not is_over, _outputs(desk.folder, len(processes))
        time.sleep(0.02)


def _outputs(folder: Path, ranks: int) -> str:
    texts = [(folder / f"output {rank}").read_text(errors="replace")[-4000:] for rank in range(ranks)]
    return "\n".join(f"rank {rank} said:\n{text}" for rank, text in enumerate(texts))


def be_rank(rank: int, ranks: int, folder: Path) -> None:
    """Be one rank; its end is abrupt, because what it shared with a dead rank cannot be left in order."""
    faulthandler.dump_traceback_later(LIMIT_S - 10.0)
    desk = Desk(folder, PATIENCE_S)
    torch.cuda.set_device(0)
    library = find_library(torch.device("cuda", 0))
    if rank == 0:
        desk.leave("uid", library.new_uid())
    start_s = time.monotonic()
    arena = NvshmemArena(library, Place("check", rank, ranks), desk.find("uid"), ARENA_BYTES)
    opened_s = time.monotonic() - start_s
    if ranks == 1:
        measured = be_alone(arena)
        arena.finish()
    elif rank == 0:
        produce(arena, desk)
        return
    else:
        measured = consume(arena, desk)
    desk.leave("measured", measured | {"seconds to open the arena": opened_s})
    sys.stdout.flush()
    os._exit(0)


def main() -> int:
    """Run both islands and print what they measured."""
    if reason := problem():
        sys.stderr.write(f"nothing was checked: {reason}\n")
        return 2
    for ranks in (1, 2):
        for name, value in run_ranks(ranks).items():
            sys.stdout.write(f"{ranks} rank{'s' * (ranks > 1)}: {name}: {value:.3g}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 4:
        be_rank(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
