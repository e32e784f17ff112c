"""Prepare what a compute process inherits: thread and wait policies, offline mode, its tie to its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def default_threads() -> int:
    """Return the torch threads of a lone worker: all usable cores but one, which serves everything else."""
    return max(len(os.sched_getaffinity(0)) - 1, 1)


def prepare_environment(threads: int) -> None:
    """Set the variables that torch and its libraries read when they are loaded.

    threads: 0 for `default_threads`. A passive wait policy keeps idle OpenMP threads from spinning on cores
    that other workers need. Model code never looks for files on the network.
    """
    count = str(threads or default_threads())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = count
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's and scipy's copies start their threads when loaded
    for name, value in (
        ("HF_HUB_OFFLINE", "1"),
        ("TRANSFORMERS_OFFLINE", "1"),
        ("DIFFUSERS_VERBOSITY", "error"),
        ("TRANSFORMERS_VERBOSITY", "error"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        os.environ.setdefault(name, value)


def die_with_parent(parent_pid: int, signal_number: signal.Signals) -> None:
    """Ask the kernel for a signal when the thread that started this process ends (Linux).

    Exits at once if the parent is gone already: then the kernel would never send it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
