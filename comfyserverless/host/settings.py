"""Hold what the control process told this process about the server (`core.hosting.HostSettings`).

The node host installs it before any pack-facing module is imported: some of those read it once.
"""

from __future__ import annotations

from pathlib import Path

from comfyserverless.core.hosting import HostSettings


def _of_folder(base: Path) -> HostSettings:
    return HostSettings(base=str(base), models=str(base / "models"))


_settings: HostSettings | None = None


def settings() -> HostSettings:
    """Return the settings of this process; those of a server below the working directory if none came."""
    return _of_folder(Path.cwd()) if _settings is None else _settings


def install_settings(new: HostSettings | None) -> HostSettings | None:
    """Make settings those of this process; returns the ones before."""
    global _settings
    before, _settings = _settings, new
    return before
