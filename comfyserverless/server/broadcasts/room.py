"""Leave room for everybody: a process may have so many files and connections open and no more.

At the limit nobody can connect, whoever used it up. So the limit is the highest that the system allows, and
the websockets of one tenant take no more than a part of it.
"""

from __future__ import annotations

import resource

_ENOUGH_FILES = 65_536
_TENANT_PART = 2


def raise_file_limit() -> None:
    """Let this process, and those it starts, open as many files as the system allows it without being asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sockets_per_tenant() -> int:
    """Return how many websockets one tenant may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (_ENOUGH_FILES if soft == resource.RLIM_INFINITY else soft) // _TENANT_PART
