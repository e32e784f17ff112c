"""Measure what a model's layers take to load and to compute, and keep it between runs of the server.

A profile belongs to a file, a device and the code: its name in the folder is a digest of all three, so a
profile of anything else is not found rather than believed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from comfyserverless import __version__
from comfyserverless.residency.prefix import shortest_prefix

_ENOUGH_RUNS = 3
_STEADY_PERCENT = 90

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Profile:
    """Nanoseconds by layer, the least that was seen; None before anything was.

    undisturbed_runs: how many runs that waited for nothing were seen; is_settled: enough of them, and every
    load.
    """

    load_ns: list[int | None]
    compute_ns: list[int | None]
    undisturbed_runs: int = 0

    @property
    def is_settled(self) -> bool:
        """Return whether the times need not be measured any more."""
        return self.undisturbed_runs >= _ENOUGH_RUNS and None not in self.load_ns

    @classmethod
    def empty(cls, layers: int) -> Profile:
        """Return a profile of which nothing is known yet."""
        return cls([None] * layers, [None] * layers)

    def saw_load(self, layer: int, load_ns: int) -> None:
        """Take note of one load."""
        seen = self.load_ns[layer]
        self.load_ns[layer] = load_ns if seen is None else min(seen, load_ns)

    def saw_run(self, compute_ns: Sequence[int], has_waited: bool) -> None:
        """Take note of one run, in which the layers took this long without waiting for loads."""
        self.compute_ns = [
            new if seen is None else min(seen, new)
            for seen, new in zip(self.compute_ns, compute_ns, strict=True)
        ]
        self.undisturbed_runs += not has_waited

    def prefix(self) -> int | None:
        """Return how many first layers hide the load of the rest; None before all times are known.

        Compute is taken to be somewhat faster than it was: loads that just fit would be late half of the time.
        """
        load_ns = [each for each in self.load_ns if each is not None]
        compute_ns = [each for each in self.compute_ns if each is not None]
        if len(load_ns) < len(self.load_ns) or len(compute_ns) < len(self.compute_ns):
            return None
        return shortest_prefix(load_ns, [each * _STEADY_PERCENT // 100 for each in compute_ns])


@dataclass(slots=True)
class ProfileStore:
    """Profiles in files of a folder; folder: None keeps none. device: its name; link: of the emulated link."""

    folder: Path | None
    device: str
    link: str = ""
    _code: str = field(default=f"comfyserverless {__version__}, torch {torch.__version__}")

    def load(self, model: str, layers: int) -> Profile:
        """Return the settled profile of a model, or an empty one."""
        try:
            found = json.loads(self._path(model).read_text()) if self.folder else {}
            load_ns, compute_ns = ([int(each) for each in found[part]] for part in ("load_ns", "compute_ns"))
        except FileNotFoundError:
            return Profile.empty(layers)
        except (OSError, ValueError, TypeError, LookupError) as exc:
            if self.folder:
                _logger.warning("profile of %s cannot be read: %r", model, exc)
            return Profile.empty(layers)
        is_right = len(load_ns) == len(compute_ns) == layers and min((*load_ns, *compute_ns), default=0) >= 0
        return Profile(list(load_ns), list(compute_ns), _ENOUGH_RUNS) if is_right else Profile.empty(layers)

    def save(self, model: str, profile: Profile) -> None:
        """Keep a settled profile; a folder that cannot be written is only logged."""
        if self.folder is None:
            return
        content = {
            "identity": self._identity(model),
            "load_ns": profile.load_ns,
            "compute_ns": profile.compute_ns,
        }
        path = self._path(model)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(content, indent=1))
            part.replace(path)
        except OSError as exc:
            _logger.warning("profile of %s cannot be written: %s", model, exc)

    def _identity(self, model: str) -> list[str]:
        return [model, self.device, self.link, self._code]

    def _path(self, model: str) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256("\n".join(self._identity(model)).encode("utf-8", "surrogateescape"))
        return self.folder / f"{digest.hexdigest()[:32]}.json"
