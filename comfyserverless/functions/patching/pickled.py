"""Load what custom packs have put into a model: callables and objects, pickled by value where needed.

The modules that packs import (`comfy.*`, `folder_paths` ...) must be found while a callable is loaded and while
it runs; in this process they stand behind everything that is installed.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import comfyserverless
from comfyserverless.core.errors import ComfyServerlessError, PromptError, WorkerError

PACK_MODULES = Path(comfyserverless.__file__).parent / "host" / "modules"
"""Where the modules that packs import lie."""

_KEPT = 32


class PickledPatches:
    """The pickled patches that were used last, by path: a file is named by what it holds, and never changes.

    A callable that keeps a state of its own keeps it for as long as it is here, as it does in ComfyUI.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._loaded: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, path: str) -> Mapping[str, Any]:
        """Return {model_options, object_patches} of a file.

        Raises PromptError if it is gone, and WorkerError naming the module or class that cannot be loaded.
        """
        with self._lock:
            if path not in self._loaded:
                self._loaded[path] = _read(path)
            self._loaded.move_to_end(path)
            while len(self._loaded) > self._kept:
                self._loaded.popitem(last=False)
            return self._loaded[path]


def _read(path: str) -> Mapping[str, Any]:
    import cloudpickle

    if str(PACK_MODULES) not in sys.path:
        sys.path.append(str(PACK_MODULES))
    try:
        with open(path, "rb") as file:
            loaded = cloudpickle.load(file)
    except FileNotFoundError:
        raise PromptError(
            f"the patch of a custom node, {Path(path).name}, is gone: queue the prompt again"
        ) from None
    except ComfyServerlessError:
        raise
    except Exception as error:  # the border to code of packs
        frames = tuple(traceback.format_tb(error.__traceback__))
        raise WorkerError(
            f"a custom node's patch of a model cannot be loaded on a worker: {error}",
            type(error).__name__,
            frames,
        ) from error
    if not isinstance(loaded, Mapping):
        raise PromptError(f"the patch of a custom node, {Path(path).name}, holds a {type(loaded).__name__}")
    return loaded


PICKLED = PickledPatches()
"""The pickled patches of this process."""
