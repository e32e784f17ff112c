"""Let threads that nodes start belong to the call that starts them.

They then find its tenant's folders, can run nodes, send messages and see interruption, as on a server where
there is one prompt at a time. Python keeps context variables from new threads before 3.14, and from pools for
good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from typing import Any

from comfyserverless.host.running.current import current


def let_threads_inherit() -> None:
    """Change `Thread.start` and `ThreadPoolExecutor.submit` of this process, once for all calls."""
    if getattr(threading.Thread.start, "__wrapped__", None) is None:
        setattr(threading.Thread, "start", _starting(threading.Thread.start))  # noqa: B010  mypy refuses it
        setattr(ThreadPoolExecutor, "submit", _submitting(ThreadPoolExecutor.submit))  # noqa: B010


def _starting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @wraps(start)
    def start_within(thread: threading.Thread) -> None:
        if current() is not None:
            vars(thread)["run"] = partial(copy_context().run, thread.run)
        start(thread)

    return start_within


def _submitting(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @wraps(submit)
    def submit_within(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        # Its threads are made by whichever call comes first, and serve others later.
        context = copy_context()
        return Context().run(submit, pool, context.run, function, *args, **kwargs)

    return submit_within
