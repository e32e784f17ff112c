"""Say which Python packages a pack wants that are not installed; nothing is ever installed from here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata

_OWN_NAMES = {
    *("av", "einops", "gguf", "imageio", "kornia", "matplotlib", "numba", "onnxruntime", "pandas", "peft"),
    *("piexif", "requests", "sentencepiece", "soundfile", "spandrel", "timm", "torchaudio", "torchvision"),
    "ultralytics",
}
_PACKAGES = {
    "color_matcher": "color-matcher",
    "cv2": "opencv-python-headless",
    "git": "GitPython",
    "imageio_ffmpeg": "imageio-ffmpeg",
    "segment_anything": "segment-anything",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
}
"""Modules that packs import as given with ComfyUI, or without naming them, by the packages that have them."""


def missing_requirements(folder: str) -> tuple[str, ...]:
    """Return the lines of a pack's requirements.txt that what is installed does not meet."""
    from packaging.requirements import InvalidRequirement, Requirement

    found: list[str] = []
    for line in _lines(os.path.join(folder, "requirements.txt")):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue  # an address, a path or an option: only pip can tell
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found.append(line)
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            found.append(line)
    return tuple(dict.fromkeys(found))


def package_of(error: BaseException) -> str:
    """Return the package to install after an import that failed, empty if it is not known or not of that kind.

    Only well-known modules are told: that a package on an index has a module's name says little about it.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    return module if module in _OWN_NAMES else _PACKAGES.get(module, "")


def pip_line(missing: tuple[str, ...]) -> str:
    """Return the command that installs what is missing."""
    words = (f'"{each}"' if set(each) & set("<>=!~;[ ") else each for each in missing)
    return f"pip install {' '.join(words)}"


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        text = line.split(" #")[0].strip()
        if text and not text.startswith(("#", "-")):
            yield text
