"""Make the tiny test models once, and prove by their digests that they are the right ones.

The files are deterministic on every machine. They live in `build/tiny_models` between test runs, or where
COMFYSERVERLESS_TINY_MODELS points (then missing files are made there as well).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GENERATOR = HERE / "make_tiny_models.py"
DIGESTS = HERE / "tiny_models.sha256"

SD_FILES = (
    "checkpoints/sd15_tiny.safetensors",
    "checkpoints/sd15_inpaint_tiny.safetensors",
    "checkpoints/sdxl_tiny.safetensors",
    "vae/sd_vae_tiny.safetensors",
    "controlnet/sd15_canny_tiny.safetensors",
    "controlnet/sd15_depth_tiny.safetensors",
    "controlnet/sdxl_canny_tiny.safetensors",
    "loras/sd15_style_tiny.safetensors",
    "loras/sd15_char_tiny.safetensors",
    "loras/sd15_loha_tiny.safetensors",
    "loras/sd15_dora_tiny.safetensors",
    "loras/sdxl_style_tiny.safetensors",
    "embeddings/tinystyle.safetensors",
    "embeddings/tinyxl.safetensors",
    "text_encoders/clip_l_tiny.safetensors",
    "upscale_models/esrgan_x2_tiny.safetensors",
    "upscale_models/esrgan_x4_tiny.safetensors",
)
"""What tests of the SD 1.5 and SDXL families use."""


def tiny_models_folder() -> Path:
    """Return where the tiny models live, absolute; it need not exist yet."""
    return Path(os.environ.get("COMFYSERVERLESS_TINY_MODELS") or ROOT / "build" / "tiny_models").resolve()


def ensure_tiny_models(files: Iterable[str] = SD_FILES) -> Path:
    """Return a ComfyUI-style models folder that holds `files`, making the missing or wrong ones.

    files: paths as in tiny_models.sha256. Raises ValueError for an unknown one, AssertionError when the
    generator does not write what the digests say.
    """
    known = _digests()
    wanted = list(files)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no such tiny model: {', '.join(unknown)}; known: {', '.join(known)}")
    folder = tiny_models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / ".lock"):
        bad = [name for name in wanted if not _is_right(folder / name, known[name])]
        if bad:
            command = [sys.executable, str(GENERATOR), str(folder), "--only", *bad]
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
        for name in bad:
            assert _is_right(folder / name, known[name]), f"{name} is not what tiny_models.sha256 lists"
    return folder


def _digests() -> dict[str, str]:
    """Read the digest list: path -> sha256."""
    rows = (line.split(maxsplit=1) for line in DIGESTS.read_text().splitlines() if line)
    return {name: digest for digest, name in rows}


def _is_right(path: Path, digest: str) -> bool:
    """Tell whether a file has the digest.

    A note of size, time and digest beside it spares reading hundreds of megabytes in every test run.
    """
    if not path.is_file():
        return False
    stat = path.stat()
    claim = f"{stat.st_size} {stat.st_mtime_ns} {digest}"
    note = path.with_suffix(".checked")
    if note.is_file() and note.read_text() == claim:
        return True
    with path.open("rb") as file:
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest
    if right and os.access(path.parent, os.W_OK):
        note.write_text(claim)
    return right


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time make the models."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
