"""Name the demo model, and say where the page's own files lie, in a checkout and in a wheel alike."""

from __future__ import annotations

from pathlib import Path

DEMO_CHECKPOINT = "shapes_v2.safetensors"
"""Our own checkpoint in `demo/models` (Stable Diffusion 1.x, 64 to 192 px): simple shapes in plain colours."""
DEMO_LORA = "shapes_outline_lora.safetensors"
"""Its style LoRA: every object is an outline."""
DEMO_CONTROLNET = "shapes_edges_controlnet.safetensors"
"""Its ControlNet: draws along white edges on black."""

_PACKAGE = Path(__file__).resolve().parents[1]


def web_folder() -> Path:
    """Return the folder that is served below `/extensions/comfyserverless/`.

    A wheel carries it inside the package; in a checkout it is `web/` beside the package.
    """
    installed = _PACKAGE / "web"
    return installed if installed.is_dir() else _PACKAGE.parent / "web"
