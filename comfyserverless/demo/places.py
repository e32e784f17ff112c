"""Say where the page's own files lie, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def web_folder() -> Path:
    """Return the folder that is served below `/extensions/comfyserverless/`.

    A wheel carries it inside the package; in a checkout it is `web/` beside the package.
    """
    installed = _PACKAGE / "web"
    return installed if installed.is_dir() else _PACKAGE.parent / "web"
