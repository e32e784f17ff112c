"""Recognise ESRGAN files in their three namings, and read their structure from shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.upscaling.rrdb import RrdbLayout

_DENSE_TELLTALE = "body.0.rdb1.conv1.weight"
_NESTINGS = ("params_ema.", "params.", "module.", "")

#: Of the original release (a sequence whose numbers depend on the factor), and of what came between.
_OLD_DENSE = re.compile(r"model\.1\.sub\.(\d+)\.RDB(\d)\.conv(\d)\.0\.(weight|bias)")
_OLD_BODY_END = re.compile(r"model\.1\.sub\.\d+\.(weight|bias)")
_OLD_SEQUENCE = re.compile(r"model\.(\d+)\.(weight|bias)")
_MIDDLE_DENSE = re.compile(r"RRDB_trunk\.(\d+)\.RDB(\d)\.conv(\d)\.(weight|bias)")
_UP = re.compile(r"(?:conv_up|upconv)(\d)\.(weight|bias)")
_RENAMED: Mapping[str, str] = {"trunk_conv": "conv_body", "HRconv": "conv_hr"}


def find_rrdb(root: Weights) -> Weights | None:
    """Return the tensors of an ESRGAN file under this project's names, None if it is another network's."""
    for prefix in _NESTINGS:
        part = root.below(prefix)
        names = _old_names(part) if "model.0.weight" in part else {name: _newer_name(name) for name in part}
        found = part.renamed({old: new for old, new in names.items() if new is not None})
        if _DENSE_TELLTALE in found and not any("conv1x1" in name for name in part):
            return found
    return None


def read_rrdb_layout(weights: Weights) -> RrdbLayout:
    """Return the structure of an ESRGAN file. Raises ModelFileError if its shapes do not make up one."""
    width, in_channels = weights.length("conv_first.weight", 0), weights.length("conv_first.weight", 1)
    out_channels = weights.length("conv_last.weight", 0)
    side = math.isqrt(in_channels // max(1, out_channels))
    unshuffle = side if side in (2, 4) and in_channels == out_channels * side**2 else 1
    doublings = _count(weights, "conv_up.{}.weight")
    if 2**doublings < unshuffle or in_channels != out_channels * unshuffle**2:
        raise ModelFileError(
            f"{weights.path}: this ESRGAN takes {in_channels} channels and gives {out_channels}, which is not"
            " supported (supported: as many, or 4 or 16 times as many for a network that doubles as often)"
        )
    return RrdbLayout(
        in_channels=in_channels,
        out_channels=out_channels,
        width=width,
        growth=weights.length(_DENSE_TELLTALE, 0),
        blocks=_count(weights, "body.{}.rdb1.conv1.weight"),
        doublings=doublings,
        unshuffle=unshuffle,
    )


def _count(weights: Weights, pattern: str) -> int:
    count = 0
    while pattern.format(count) in weights:
        count += 1
    return count


def _newer_name(name: str) -> str | None:
    if found := _MIDDLE_DENSE.fullmatch(name):
        block, dense, at, leaf = found.groups()
        return f"body.{block}.rdb{dense}.conv{at}.{leaf}"
    if found := _UP.fullmatch(name):
        return f"conv_up.{int(found[1]) - 1}.{found[2]}"
    stem, _, leaf = name.rpartition(".")
    return f"{_RENAMED.get(stem, stem)}.{leaf}"


def _old_names(weights: Weights) -> dict[str, str | None]:
    """Map the original naming: first, body, three numbers for each doubling, two convolutions at the end."""
    numbers = sorted({int(found[1]) for name in weights if (found := _OLD_SEQUENCE.fullmatch(name))})
    stems = {0: "conv_first", **{number: f"conv_up.{at}" for at, number in enumerate(numbers[1:-2])}}
    stems |= dict(zip(numbers[-2:], ("conv_hr", "conv_last"), strict=False))
    return {name: _old_name(name, stems) for name in weights}


def _old_name(name: str, stems: Mapping[int, str]) -> str | None:
    if found := _OLD_DENSE.fullmatch(name):
        block, dense, at, leaf = found.groups()
        return f"body.{block}.rdb{dense}.conv{at}.{leaf}"
    if found := _OLD_BODY_END.fullmatch(name):
        return f"conv_body.{found[1]}"
    found = _OLD_SEQUENCE.fullmatch(name)
    return f"{stems[int(found[1])]}.{found[2]}" if found else None
