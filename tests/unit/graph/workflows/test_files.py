"""Find prompts and workflows in the files that ComfyUI writes."""

from __future__ import annotations

import io
import json
import struct
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from comfyserverless.graph.workflows.document import WorkflowError
from comfyserverless.graph.workflows.embedded.texts import embedded_texts
from comfyserverless.graph.workflows.files import read_file
from comfyserverless.graph.workflows.kinds import kind_of

PROMPT = {"1": {"class_type": "KSampler", "inputs": {"text": "größer"}}}
SAVED = {"version": 0.4, "nodes": [], "links": []}
TEXTS = {"prompt": json.dumps(PROMPT), "workflow": json.dumps(SAVED)}


def png(**chunks: tuple[str, str]) -> bytes:
    """Build a PNG with texts: keyword -> (kind of chunk, text)."""
    notes = PngImagePlugin.PngInfo()
    for key, (kind, text) in chunks.items():
        if kind == "iTXt":
            notes.add_itxt(key, text, zip=True)
        else:
            notes.add_text(key, text, zip=kind == "zTXt")
    out = io.BytesIO()
    Image.new("RGB", (2, 2)).save(out, "PNG", pnginfo=notes)
    return out.getvalue()


def with_exif(kind: str) -> bytes:
    """Build a picture whose EXIF tags hold the texts as ComfyUI puts them there."""
    exif = Image.Exif()
    exif[0x0110] = f"prompt:{TEXTS['prompt']}"
    exif[0x010F] = f"workflow:{TEXTS['workflow']}"
    out = io.BytesIO()
    Image.new("RGB", (2, 2)).save(out, kind, exif=exif)
    return out.getvalue()


def box(kind: bytes, body: bytes) -> bytes:
    """Build a box of an MP4 file."""
    return struct.pack(">I", 8 + len(body)) + kind + body


def mp4(has_udta: bool) -> bytes:
    """Build the part of an MP4 file that holds free keys."""
    keys = b"".join(box(b"mdta", key.encode()) for key in TEXTS)
    items = b"".join(
        box(struct.pack(">I", index), box(b"data", struct.pack(">II", 1, 0) + text.encode()))
        for index, text in enumerate(TEXTS.values(), 1)
    )
    handler = box(b"hdlr", bytes(8) + b"mdta" + bytes(13))
    body = handler + box(b"keys", struct.pack(">II", 0, len(TEXTS)) + keys) + box(b"ilst", items)
    meta = box(b"udta", box(b"meta", bytes(4) + body)) if has_udta else box(b"meta", body)
    return box(b"ftyp", b"isom") + box(b"mdat", bytes(100)) + box(b"moov", box(b"mvhd", bytes(20)) + meta)


def element(kind: int, body: bytes, *, is_open: bool = False) -> bytes:
    """Build an element of a WEBM file, with a length of eight bytes or of unknown length."""
    length = (1 << 57) - 1 if is_open else 1 << 56 | len(body)
    length = (0x01FFFFFFFFFFFFFF) if is_open else length
    return kind.to_bytes((kind.bit_length() + 7) // 8, "big") + length.to_bytes(8, "big") + body


def webm() -> bytes:
    """Build a WEBM file of tags, in a segment of unknown length."""
    tags = b"".join(
        element(0x67C8, element(0x45A3, key.upper().encode()) + element(0x4487, text.encode()))
        for key, text in TEXTS.items()
    )
    segment = element(0x1F43B675, bytes(30)) + element(0x1254C367, element(0x7373, tags))
    return element(0x1A45DFA3, b"") + element(0x18538067, segment, is_open=True)


def flac() -> bytes:
    """Build the head of a FLAC file with comments."""
    comments = [f"{key}={text}".encode() for key, text in TEXTS.items()]
    body = struct.pack("<I", 3) + b"abc" + struct.pack("<I", len(comments))
    body += b"".join(struct.pack("<I", len(each)) + each for each in comments)
    return b"fLaC" + bytes([0, 0, 0, 34]) + bytes(34) + bytes([0x84]) + len(body).to_bytes(3, "big") + body


def safetensors() -> bytes:
    """Build a safetensors file without tensors."""
    header = json.dumps({"__metadata__": TEXTS}).encode()
    return struct.pack("<Q", len(header)) + header


FILES: dict[str, bytes] = {
    "tEXt": png(prompt=("tEXt", TEXTS["prompt"]), workflow=("tEXt", TEXTS["workflow"])),
    "zTXt": png(prompt=("zTXt", TEXTS["prompt"]), workflow=("zTXt", TEXTS["workflow"])),
    "iTXt": png(prompt=("iTXt", TEXTS["prompt"]), workflow=("iTXt", TEXTS["workflow"])),
    "webp": with_exif("WEBP"),
    "jpeg": with_exif("JPEG"),
    "mp4": mp4(has_udta=True),
    "mov": mp4(has_udta=False),
    "webm": webm(),
    "flac": flac(),
    "safetensors": safetensors(),
}


@pytest.mark.parametrize("kind", FILES)
def test_prompt_and_workflow_are_found(kind: str) -> None:
    found = read_file(FILES[kind], "file")
    assert (found.kind, found.content, found.workflow) == ("api", PROMPT, SAVED)


def test_workflow_alone_is_enough() -> None:
    found = read_file(png(workflow=("tEXt", TEXTS["workflow"])), "file")
    assert (found.kind, found.content) == ("ui", SAVED)


def test_chunk_of_animated_pictures_is_read() -> None:
    body = b"comf" + b"prompt\0" + TEXTS["prompt"].encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    assert read_file(png()[:-12] + chunk, "file").content == PROMPT


@pytest.mark.parametrize(
    ("content", "kind"), [(PROMPT, "api"), (SAVED, "ui"), ({"prompt": PROMPT}, "api"), ({"nodes": []}, "ui")]
)
def test_json_is_told_apart(content: Any, kind: str) -> None:
    assert read_file(json.dumps(content).encode(), "file").kind == kind


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x01", "neither JSON nor one of PNG, WEBP"),
        (b"[]", "neither a saved workflow"),
        (b'{"a": 1}', "neither a saved workflow"),
        (png(), "the PNG file holds neither"),
        (FILES["webp"][:40], "the WEBP file holds neither"),
    ],
)
def test_file_without_a_workflow_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(WorkflowError, match=f"a.png: .*{reason}"):
        read_file(data, "a.png")


def test_text_that_inflates_without_end_is_cut() -> None:
    bomb = zlib.compress(bytes(80 << 20), 9)
    body = b"zTXtprompt\0\0" + bomb
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(body) - 4) + body + bytes(4)
    found = embedded_texts(data)
    assert found is not None
    assert len(found[1]["prompt"]) == 64 << 20


@given(st.sampled_from(sorted(FILES)), st.data())
def test_damaged_files_never_fail_otherwise(kind: str, data: st.DataObject) -> None:
    content = bytearray(FILES[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(WorkflowError):
        read_file(cut, "file")


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
    )
)
def test_any_json_has_a_kind_or_none(value: Any) -> None:
    assert kind_of(value) in ("api", "ui", None)


def test_nan_that_comfyui_writes_is_read_as_null() -> None:
    text = '{"1": {"class_type": "A", "inputs": {}, "is_changed": [NaN]}}'
    embedded = read_file(png(prompt=("tEXt", text)), "w")
    assert embedded.content == read_file(text.encode(), "w").content
    assert embedded.content["1"]["is_changed"] == [None]
