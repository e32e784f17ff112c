"""Headers of safetensors files, good and bad."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.header import read_header
from tests.unit.models.files import write_file, write_raw

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def test_a_header_gives_type_shape_and_place_of_each_tensor(tmp_path: Path) -> None:
    file = write_file(
        tmp_path / "a.safetensors", {"x": torch.ones(2, 3), "y": torch.zeros(4, dtype=torch.float16)}
    )
    header = read_header(file.path)
    assert header.tensors["x"].shape == (2, 3)
    assert header.tensors["y"].dtype is torch.float16
    assert header.tensors["x"].size_bytes == 24
    assert max(t.begin_bytes + t.size_bytes for t in header.tensors.values()) == file.size_bytes


def test_metadata_is_kept_apart_from_tensors(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", {"__metadata__": {"k": "v"}, "x": ENTRY}, bytes(8))
    header = read_header(path)
    assert dict(header.metadata) == {"k": "v"}
    assert list(header.tensors) == ["x"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.safetensors: cannot be read: No such file"):
        read_header(str(tmp_path / "gone.safetensors"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds only 0 bytes"),
        (b"abc", "holds only 3 bytes"),
        (b"<html><body>not found</body></html>", "its header would be"),
        (struct.pack("<Q", 500) + b"{}", "truncated: the header needs 508 bytes"),
        (struct.pack("<Q", 4) + b"nope", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 200_000) + b"[" * 100_000 + b"]" * 100_000, "its header is not JSON"),
        (struct.pack("<Q", 21) + b'{"__metadata__": [1]}', "its __metadata__ is not a JSON object"),
    ],
)
def test_a_foreign_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"bad.safetensors: .*{reason}"):
        read_header(str(path))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"dtype": "F32", "shape": [2]}, "bad header entry for 'x'"),
        ({"dtype": "F32", "shape": ["a"], "data_offsets": [0, 8]}, "bad header entry for 'x'"),
        ({"dtype": "Q4", "shape": [2], "data_offsets": [0, 8]}, "has type 'Q4'; known are F64"),
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, "does not fit bytes 0..8"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}, "does not fit bytes"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, "truncated: tensor 'x' ends at byte"),
    ],
)
def test_a_bad_entry_is_refused_with_the_reason(tmp_path: Path, entry: object, reason: str) -> None:
    path = write_raw(tmp_path / "bad.safetensors", {"x": entry}, bytes(8))
    with pytest.raises(ModelFileError, match=reason):
        read_header(path)


def test_overlong_numbers_and_odd_types_in_an_entry_are_refused(tmp_path: Path) -> None:
    for at, entry in enumerate(
        (
            b'{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}',
            b'{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}',
            b'{"dtype":{},"shape":[1],"data_offsets":[0,4]}',
            b'"text"',
        )
    ):
        path = write_raw(tmp_path / f"{at}.safetensors", b'{"x":' + entry + b"}", bytes(4))
        with pytest.raises(ModelFileError, match=rf"{at}\.safetensors: .*bad header entry for 'x'"):
            read_header(path)
