"""Be the node host: put its parts together, load the packs, and serve the link."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch

from comfyserverless import log_lines
from comfyserverless.core.hosting import HostPlan
from comfyserverless.core.zygote import SpawnWorker, ZygoteOptions
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host.running.threads import let_threads_inherit
from comfyserverless.host.session import HostSession
from comfyserverless.worker.arenas import open_arena
from comfyserverless.worker.environment import default_threads
from comfyserverless.worker.link import Link, LinkLost, dial

log = logging.getLogger(__name__)

LINK_LOST_STATUS = 3
_OOM_SCORE = "600"
MODULES = Path(__file__).parent / "modules"
"""The folder of the modules that packs import."""


def run_host(options: ZygoteOptions, request: SpawnWorker, *, is_offline: bool = False) -> int:
    """Run the node host in this process until the end; return the exit code.

    is_offline: packs shall not look for files on the network, either.
    """
    plan = request.host
    assert plan is not None
    if not is_offline:
        allow_downloads()
    _take_output(plan, options)
    torch.set_num_threads(request.threads or options.threads or default_threads())
    prepare_imports(plan)
    let_threads_inherit()
    store: TensorStore | None = None
    try:
        with dial(request.link) as connection:
            link = Link(connection)
            arena = open_arena(request, torch.device("cpu"), link)
            store = TensorStore(request.worker, arena)
            HostSession(request, plan, arena, store, link).serve()
    except LinkLost as exc:
        log.error("node host %s: %s", request.worker, exc)
        if store is not None:
            store.close()
        # At once: whatever still runs has nobody to answer to.
        os._exit(LINK_LOST_STATUS)
    finally:
        if store is not None:
            store.close()
    # Threads of packs must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def prepare_imports(plan: HostPlan) -> None:
    """Let packs import our modules under ComfyUI's names, and nothing of the folder the server was started in.

    The base folder comes last, so that packs can be imported as `custom_nodes.Name`.
    """
    here = os.getcwd()
    paths = [path for path in sys.path if path and os.path.abspath(path) != here]
    package_root = str(Path(__file__).parents[2])
    sys.path[:] = [str(MODULES), *paths]
    for path in (package_root, str(MODULES / "comfy"), plan.settings.base):
        if path and path not in sys.path:
            sys.path.append(path)
    sys.argv = list(plan.settings.argv[:1]) or ["comfyserverless"]


def allow_downloads() -> None:
    """Let packs get their models from where they are published: what our own model code may not do."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ.pop(name, None)
    constants: Any = sys.modules.get("huggingface_hub.constants")
    if constants is not None:  # it has read them, in the process that this one is a fork of
        constants.HF_HUB_OFFLINE = False


def _take_output(plan: HostPlan, options: ZygoteOptions) -> None:
    """Send what this process prints to the control process, which bounds it; log there too, as plain lines."""
    with contextlib.suppress(OSError):  # the kernel ends this process first when memory runs out
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if plan.output:
        with socket.socket(socket.AF_UNIX) as out:
            out.connect(plan.output)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
    sys.stdout.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    log_lines.set_up(options.log_level, "text")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(log_lines.TextFormatter("%(levelname)s %(message)s"))
    faulthandler.enable()
