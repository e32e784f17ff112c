"""Turn what a pack put into a model into a file that workers read: a cloudpickle named by its digest.

Modules of packs are pickled by value, because workers cannot import them; ours and installed ones by name. See
`core.values.PYTHON_PATCH` for what the file holds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

import comfyserverless
from comfyserverless.core.values import PYTHON_PATCH, Patch
from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.models import scratch
from comfyserverless.host.models.options import filled

_SUFFIX = ".pickle"
_lock = threading.RLock()
_importable = (
    str(Path(sys.prefix).resolve()),
    str(Path(sys.base_prefix).resolve()),
    str(Path(comfyserverless.__file__).resolve().parent),
)


def freeze(model_options: Mapping[str, Any], object_patches: Mapping[str, Any]) -> Patch | None:
    """Return the patch that carries options and objects; None if there is nothing to carry.

    Raises NotSupportedError naming the callable or object that cannot be pickled.
    """
    content = {"model_options": filled(dict(model_options)), "object_patches": dict(object_patches)}
    if not content["model_options"] and not content["object_patches"]:
        return None
    path = scratch.keep(pickle_by_value(content), _SUFFIX)
    return Patch(PYTHON_PATCH, (("path", str(path)),))


def thaw(patch: Patch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (model_options, object_patches) of a patch."""
    path = dict(patch.arguments)["path"]
    content = cloudpickle.loads(Path(str(path)).read_bytes())
    return content["model_options"], content["object_patches"]


def pickle_by_value(content: Any) -> bytes:
    """Pickle a tree; what cannot be pickled is named in the error."""
    with _packs_by_value():
        try:
            return bytes(cloudpickle.dumps(content))
        except Exception as exc:
            where, what = _culprit(content) or ("its model options", content)
            name = getattr(what, "__qualname__", type(what).__qualname__)
            raise NotSupportedError(
                f"{name} in {where} cannot travel to the workers, where the model runs: {exc}"
            ) from exc


def _culprit(value: Any, path: str = "") -> tuple[str, Any] | None:
    """Find the first leaf that cannot be pickled: (where it is, itself)."""
    if type(value) is dict:
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif type(value) is list:
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001  see above
            return path, value
        return None
    return next((found for where, item in items if (found := _culprit(item, where)) is not None), None)


@contextmanager
def _packs_by_value() -> Iterator[None]:
    """Have modules of packs pickled by value within the block."""
    with _lock:
        registered = [module for module in list(sys.modules.values()) if _is_of_pack(module)]
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)


def _is_of_pack(module: Any) -> bool:
    """Tell whether a module is neither installed, nor of Python, nor ours."""
    if not isinstance(module, ModuleType) or sys.modules.get(module.__name__) is not module:
        return False
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or module.__name__ == "__main__":
        return False
    return not str(Path(file).absolute()).startswith(_importable)
