"""Name the demo model, and say where the page's own files lie, in a checkout and in a wheel alike."""

from __future__ import annotations

from pathlib import Path

DEMO_CHECKPOINT = "shapes_v1.safetensors"
"""Our own checkpoint in `demo/models` (Stable Diffusion 1.x, 128x128): simple shapes in plain colours."""

_PACKAGE = Path(__file__).resolve().parents[1]


def web_folder() -> Path:
    """Return the folder that is served below `/extensions/comfyserverless/`.

    A wheel carries it inside the package; in a checkout it is `web/` beside the package.
    """
    installed = _PACKAGE / "web"
    return installed if installed.is_dir() else _PACKAGE.parent / "web"
