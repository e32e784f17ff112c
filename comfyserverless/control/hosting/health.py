"""Judge the lives of the node host: which packs to go on without, when to start the next one, what to tell.

- A pack whose import ends the process is tried once more: the kill may have come from elsewhere. Then it is
  given up, until one of its files changes.
- So is a pack that itself ends the process a few times while no node ran.
- If the process ends again and again with nobody to blame, it is started ever later, and nobody waits for it.

A death while a node ran is that node's, and counts for nothing here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

FAILING_DEATHS = 4
"""Deaths in a row, with no node that ran, after which prompts do not wait for the host any more."""

_TRIES = 2
_EXITS = 3
_PROVEN_S = 20.0
"""A host that has lived so long since its packs were loaded is no failure."""

_LONGEST_DELAY_S = 60.0
_START_WITHIN_S = 40.0
_QUIET_WITHIN_S = 15.0
"""How long a host may take to begin with its packs, and with one of them, before the page goes on without."""


class HostHealth:
    """Own what is known of the lives so far. mark_of: gives something that changes with a pack's files."""

    def __init__(self, mark_of: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._mark_of = mark_of
        self._clock = clock
        #: why packs are not loaded: name -> reason, and what its files were like then.
        self._given_up: dict[str, tuple[str, object]] = {}
        #: packs -> how often their imports have ended a host, and how often they did so later.
        self._import_deaths: dict[str, int] = {}
        self._exits: dict[str, int] = {}
        self.loading = ""
        """The pack whose import runs, "" for none."""
        self._changed_s = clock()
        self._loaded_s: float | None = None
        self._has_joined = False
        self._leaving = ("", "")
        self._idle_deaths = 0
        self._failed_starts = 0

    # -- what happens -----------------------------------------------------------------------------

    def joined(self) -> None:
        """Take note that a host is there."""
        self._has_joined, self._failed_starts, self._changed_s = True, 0, self._clock()

    def begun(self, pack: str) -> None:
        """Take note that the import of a pack begins; "" for the end of all."""
        self.loading, self._changed_s = pack, self._clock()

    def loaded(self) -> None:
        """Take note that all packs are there."""
        self.loading, self._loaded_s = "", self._clock()

    def worked(self) -> None:
        """Take note that a node has run to its end: the host is good for something."""
        self._idle_deaths = 0
        self._exits.clear()

    def leaving(self, pack: str, where: str) -> None:
        """Take note that code of a pack ends the process, and where it says so."""
        self._leaving = (pack, where)

    def not_started(self) -> None:
        """Take note that the process that hosts are made from has ended before it was ready."""
        self._failed_starts += 1

    def lost(self, *, is_busy: bool) -> None:
        """Take note that a host that had joined is gone; is_busy: a node ran there."""
        pack, where = self._leaving
        if self.loading:
            self._note_import(self.loading)
        elif not is_busy:
            self._note_idle_death()
            if pack:
                self._note_exit(pack, where)
        self.loading, self._loaded_s, self._leaving = "", None, ("", "")

    def ended(self) -> float:
        """Take note that a host's process is over; returns how many seconds to wait before the next one."""
        if not self._has_joined:
            self._note_idle_death()
        self._has_joined = False
        self._changed_s = self._clock()
        late = self._idle_deaths - FAILING_DEATHS
        if late < 0:
            return 0.0
        delay_s = float(min(2.0 ** (late + 1), _LONGEST_DELAY_S))
        log.error("%s; it is started again in %.0f s", self._failure(), delay_s)
        return delay_s

    # -- what follows -----------------------------------------------------------------------------

    def given_up(self) -> dict[str, str]:
        """Return the packs not to load, with reasons; one whose files have changed is tried again."""
        for pack, (_, mark) in tuple(self._given_up.items()):
            if self._mark_of(pack) != mark:
                log.info("node pack %s has changed; trying it again", pack)
                del self._given_up[pack]
                self._import_deaths.pop(pack, None)
        return {pack: reason for pack, (reason, _) in self._given_up.items()}

    @property
    def is_failing(self) -> bool:
        """Tell whether nobody should wait for the host."""
        if self._failed_starts:
            return True
        is_proven = self._loaded_s is not None and self._clock() - self._loaded_s >= _PROVEN_S
        return self._idle_deaths >= FAILING_DEATHS and not is_proven

    def patience_s(self) -> float:
        """Return how much longer the page should wait for a host that is not loaded, if nothing changes."""
        if self.is_failing:
            return 0.0
        within_s = _QUIET_WITHIN_S if self._has_joined else _START_WITHIN_S
        return max(0.0, self._changed_s + within_s - self._clock())

    def problem(self) -> str:
        """Say in one sentence why nodes of packs are not there, "" if nothing is wrong with them."""
        if self._failed_starts:
            return "The process that runs node packs cannot be started; see the log"
        if self.is_failing:
            return self._failure()
        return (
            f"Node pack {self.loading} is being imported, for {self.import_s():.0f} s so far"
            if self.loading
            else ""
        )

    def import_s(self) -> float:
        """Return for how long the import that runs has been running, 0 if there is none."""
        return self._clock() - self._changed_s if self.loading else 0.0

    def _failure(self) -> str:
        named = ", ".join(sorted(self._exits))
        whose = f" (last by code of {named})" if named else ""
        return f"The process of the node packs ended {self._idle_deaths} times{whose} while no node ran"

    def _note_import(self, pack: str) -> None:
        deaths = self._import_deaths[pack] = self._import_deaths.get(pack, 0) + 1
        if deaths < _TRIES:
            log.error("node pack %s ended the process at its import; trying once more", pack)
        else:
            self._give_up(pack, "its import ended the process")

    def _note_exit(self, pack: str, where: str) -> None:
        exits = self._exits[pack] = self._exits.get(pack, 0) + 1
        log.error("node pack %s ended the process of all packs: %s", pack, where)
        if exits >= _EXITS:
            del self._exits[pack]
            self._idle_deaths = 0
            self._give_up(pack, f"it ended the process again and again: {where}")

    def _note_idle_death(self) -> None:
        is_late = self._loaded_s is not None and self._clock() - self._loaded_s >= _PROVEN_S
        self._idle_deaths = 1 if is_late else self._idle_deaths + 1

    def _give_up(self, pack: str, reason: str) -> None:
        log.error("node pack %s is given up until its files change: %s; going on without it", pack, reason)
        self._given_up[pack] = (reason, self._mark_of(pack))
