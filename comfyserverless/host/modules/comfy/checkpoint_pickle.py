"""ComfyUI's `comfy.checkpoint_pickle`: torch asks it for classes of a pickle; those of trainers are
replaced."""

import pickle
from typing import Any

from comfyserverless.host.missing import missing_names

load = pickle.load


class Empty:
    """Stand for an object of a trainer."""


class Unpickler(pickle.Unpickler):
    """Read a pickle without the classes of pytorch_lightning."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the pickle."""
        return Empty if module.startswith("pytorch_lightning") else super().find_class(module, name)


__getattr__ = missing_names(__name__)
