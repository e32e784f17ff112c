from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from comfyserverless.worker.environment import default_threads, die_with_parent, prepare_environment


def test_thread_and_wait_policies_are_set_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "64"})
    prepare_environment(3)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("3", "3")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["HF_HUB_OFFLINE"] == "0", "what the user set stays"
    assert os.environ["TRANSFORMERS_OFFLINE"] == "1"


def test_default_threads_leave_one_core_to_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert default_threads() == 7
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert default_threads() == 1


def test_start_of_a_worker_loads_no_torch_before_its_environment_is_set() -> None:
    program = (
        "import sys, comfyserverless.worker.__main__; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_process_whose_parent_is_gone_already_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.fork()
    if pid == 0:
        die_with_parent(os.getppid() + 1, signal.SIGKILL)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
