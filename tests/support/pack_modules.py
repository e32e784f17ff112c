"""Put the modules that packs import into a test's process, with a bridge that remembers what is asked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import comfyserverless.host
from comfyserverless.core.hosting import HostSettings
from comfyserverless.host.bridge import CallInfo, InterruptProcessingException, Offline, Places, install
from comfyserverless.host.settings import install_settings

MODULES = Path(comfyserverless.host.__file__).parent / "modules"


@dataclass
class RememberingBridge(Offline):
    """A bridge that notes what it is told, and answers what the test has put in."""

    own_places: Places
    own_call: CallInfo = field(default_factory=CallInfo)
    told: list[tuple[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    is_interrupted: bool = False

    @property
    def call(self) -> CallInfo:
        """Return the call that the test has put in."""
        return self.own_call

    @property
    def places(self) -> Places:
        """Return the folders that the test has put in."""
        return self.own_places

    def ask(self, kind: str, payload: Any) -> Any:
        """Return the answer that the test has put in."""
        self.told.append((kind, payload))
        return self.answers[kind]

    def progress(
        self, value: float, maximum: float, node_id: str | None = None, preview: bytes | None = None
    ) -> None:
        """Note it. Raises InterruptProcessingException if the test says so."""
        self.throw_if_interrupted()
        self.told.append(("progress", (value, maximum, node_id, preview)))

    def text(self, text: str, node_id: str | None = None) -> None:
        """Note it."""
        self.told.append(("text", (text, node_id)))

    def send(self, event: str | int, data: Any, client_id: str | None) -> None:
        """Note it."""
        self.told.append(("send", (event, data, client_id)))

    def throw_if_interrupted(self) -> None:
        """Raise InterruptProcessingException if the test says so."""
        if self.is_interrupted:
            raise InterruptProcessingException

    def interrupt(self, value: bool = True) -> None:
        """Note it."""
        self.is_interrupted = value


def places_below(folder: Path) -> Places:
    """Return the folders of a server below one folder; they are made."""
    kinds = ("input", "output", "temp", "user")
    for kind in kinds:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    return Places(folder, *(folder / kind for kind in kinds))


@contextmanager
def pack_modules(folder: Path, **settings: Any) -> Iterator[RememberingBridge]:
    """Make the modules importable, fresh, for a server below `folder`; afterwards they are gone."""
    given = HostSettings(base=str(folder), models=str(folder / "models"), **settings)
    bridge = RememberingBridge(places_below(folder))
    before, before_settings = install(bridge), install_settings(given)
    finders = list(sys.meta_path)
    sys.path.insert(0, str(MODULES))
    _unload()
    try:
        yield bridge
    finally:
        sys.path.remove(str(MODULES))
        sys.meta_path[:] = finders
        _unload()
        install(before)
        install_settings(before_settings)


def _unload() -> None:
    names = {path.stem for path in MODULES.iterdir()}
    for name in [each for each in sys.modules if each.partition(".")[0] in names]:
        del sys.modules[name]


def module(name: str) -> Any:
    """Import one of the modules."""
    return importlib.import_module(name)


def another_tenant(bridge: RememberingBridge, name: str) -> Places:
    """Let the bridge serve another tenant's call; returns its folders."""
    places = replace(places_below(bridge.own_places.base / "tenants" / name), base=bridge.own_places.base)
    bridge.own_places, bridge.own_call = places, replace(bridge.own_call, tenant=name)
    return places
