"""Load textual-inversion files: vectors that stand for words in a prompt."""

from __future__ import annotations

import logging
import os

from torch import Tensor

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import open_weights

_SUFFIXES = ("", ".safetensors", ".pt", ".bin")
_LOADABLE = frozenset(_SUFFIXES[1:])
_logger = logging.getLogger(__name__)


def load_embedding(folders: tuple[str, ...], name: str, key: str) -> Tensor | None:
    """Return the vectors [n, D] float32 of the textual inversion `name`, or None if no folder has one.

    key: which tensor belongs to this text encoder in files made for several (`clip_l`, `clip_g`); without it
    the first tensor is taken. A damaged file is logged and ignored, as a prompt must not fail over it.
    """
    path = find_embedding_file(folders, name)
    if path is None:
        return None
    try:
        weights = open_weights(path)
        names = list(weights)
        chosen = key if key in weights else names[0] if names else None
        vectors = None if chosen is None else weights.load(chosen)
    except ModelFileError as exc:
        _logger.warning("textual inversion %r is ignored: %s", name, exc)
        return None
    if vectors is None or vectors.ndim not in (1, 2):
        _logger.warning("textual inversion %r is ignored: %s holds no vectors", name, path)
        return None
    return vectors.reshape(-1, vectors.shape[-1]).float()


def find_embedding_file(folders: tuple[str, ...], name: str) -> str | None:
    """Return the file of a textual inversion; names that lead out of a folder find nothing.

    A link that the owner of the folder put there may lead anywhere.
    """
    if "\0" in name:
        return None
    for folder in folders:
        root = os.path.abspath(folder)
        for suffix in _SUFFIXES:
            path = os.path.abspath(os.path.join(root, name + suffix))
            is_inside = path.startswith(root.rstrip(os.sep) + os.sep)
            if is_inside and os.path.splitext(path)[1].lower() in _LOADABLE and os.path.isfile(path):
                return path
    return None
