"""Read the tensors of files that torch.save wrote, without running code of the file.

torch's weights-only loader builds plain data and tensors and refuses everything else. Checkpoints from training
also carry a few objects of the trainer and of numpy beside the weights; those are read as empty marks.
"""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.core.errors import ModelFileError

_NESTING = ("state_dict", "string_to_param", "params_ema", "params")
"""Where checkpoints, textual inversions and upscalers keep their tensors, when not at the top."""

_MAX_NESTING = 8


class _Mark:
    """Stand for an object of the file that nobody needs; takes any arguments and state, keeps nothing."""

    def __new__(cls, *args: Any) -> _Mark:
        return super().__new__(cls)

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


_MARKED = (
    *(
        f"{root}.callbacks.model_checkpoint.ModelCheckpoint"
        for root in ("pytorch_lightning", "lightning.pytorch")
    ),
    *(f"{root}.callbacks.early_stopping.EarlyStopping" for root in ("pytorch_lightning", "lightning.pytorch")),
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    *(f"numpy.dtypes.{kind}DType" for kind in ("Float64", "Float32", "Int64", "Int32", "Bool")),
)
"""What training leaves in checkpoints; the first public Stable Diffusion files have the first of these."""

_ALLOWED: list[Any] = [(_Mark, name) for name in _MARKED]


def read_pickle(path: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a file by name; zip archives stay mapped as long as the tensors live.

    Raises ModelFileError, naming the file, if it is missing, damaged, or would have to run code.
    """
    tensors = flatten_tensors(read_content(path))
    for name, tensor in tensors.items():
        _check_plain(path, name, tensor)
    return tensors


def read_content(path: str) -> Any:
    """Return what a file holds, plain data and tensors as they are nested in it; raises as `read_pickle`."""
    # The list is one of the process, so it is only ever added to, always the same.
    torch.serialization.add_safe_globals(_ALLOWED)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except OSError as exc:
        raise ModelFileError(f"{path}: cannot be read: {exc}") from exc
    except pickle.UnpicklingError as exc:
        raise ModelFileError(f"{path}: {_refusal(str(exc))}") from exc
    except (
        RuntimeError,
        EOFError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
        AssertionError,
        struct.error,
        zipfile.BadZipFile,
    ) as exc:
        first = next(iter(str(exc).splitlines()), type(exc).__name__)
        raise ModelFileError(f"{path}: is damaged, or no file of torch.save: {first}") from exc


def flatten_tensors(content: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a pickled file: of the mapping itself, or the one nested in it."""
    for _ in range(_MAX_NESTING):
        if not isinstance(content, Mapping):
            return {}
        inner = next((content[key] for key in _NESTING if isinstance(content.get(key), Mapping)), None)
        if inner is None and len(content) == 1 and isinstance(only := next(iter(content.values())), Mapping):
            inner = only
        if inner is None:
            return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
        content = inner
    return {}


def _refusal(reason: str) -> str:
    found = re.search(r"GLOBAL (\S+)", reason)
    what = f"holds more than plain tensors ({found[1]})" if found else "is damaged, or no file of torch.save"
    return f"{what}; only plain tensors are loaded from pickles. Use a safetensors file"


def _check_plain(path: str, name: str, tensor: torch.Tensor) -> None:
    """Refuse tensors whose memory is not what their shape says: sparse, quantised, or one number repeated."""
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not is_plain or tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise ModelFileError(f"{path}: tensor {name!r} is no plain tensor; use a safetensors file")
