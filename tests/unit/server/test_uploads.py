"""Uploads are stored untouched inside their folder, under a free name."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyserverless.core.config import Folders

Client = TestClient[Any, Any]
RECORDED = json.loads((Path(__file__).parents[2] / "contract/data/upload.json").read_text())


def form(content: bytes, name: str, **fields: str) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    data.add_field("image", content, filename=name)
    for key, value in fields.items():
        data.add_field(key, value)
    return data


async def upload(client: Client, content: bytes, name: str = "up_test.png", **fields: str) -> tuple[int, Any]:
    answer = await client.post("/upload/image", data=form(content, name, **fields))
    return answer.status, await answer.json()


async def test_uploads_get_the_recorded_names(client: Client, folders: Folders) -> None:
    sent = {
        "plain": (b"one", {}),
        "again_same": (b"one", {}),
        "again_different": (b"two", {}),
        "overwrite": (b"three", {"overwrite": "true"}),
        "subfolder_temp": (b"one", {"subfolder": "sub/a", "type": "temp"}),
    }
    for key, (content, fields) in sent.items():
        assert await upload(client, content, **fields) == (200, RECORDED[key]["body"]), key
    assert (folders.input / "up_test.png").read_bytes() == b"three"
    assert (folders.input / "up_test (1).png").read_bytes() == b"two"
    assert (folders.temp / "sub/a/up_test.png").read_bytes() == b"one"
    assert sorted(path.name for path in folders.input.iterdir()) == ["up_test (1).png", "up_test.png"]


async def test_same_content_under_a_counted_name_is_found_again(client: Client) -> None:
    for content in (b"one", b"two"):
        await upload(client, content)
    assert (await upload(client, b"two"))[1]["name"] == "up_test (1).png"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("a.png", {"subfolder": "../.."}),
        ("a.png", {"subfolder": "/etc"}),
        ("../evil.png", {}),
        ("sub/evil.png", {}),
        ("..\\evil.png", {}),
        ("..", {}),
        ("a.png", {"type": "models"}),
        ("a" * 300 + ".png", {}),
    ],
)
async def test_escapes_and_impossible_names_are_refused(
    client: Client, folders: Folders, name: str, fields: dict[str, str]
) -> None:
    status, answer = await upload(client, b"x", name, **fields)
    assert status == 400
    assert str(folders.base) not in answer["error"]
    assert not list(folders.base.rglob("*evil*"))


async def test_form_without_file_is_refused(client: Client) -> None:
    assert (await client.post("/upload/image", data={"type": "input"})).status == 400
    assert (await client.post("/upload/image", data={"image": "text"})).status == 400
    assert (await client.post("/upload/image", data=b"raw")).status == 400
    broken = {"Content-Type": "multipart/form-data"}
    assert (await client.post("/upload/image", data=b"raw", headers=broken)).status == 400


async def test_any_media_is_stored_as_it_is(client: Client, folders: Folders) -> None:
    assert (await upload(client, b"\0not media\xff", "clip.mp4"))[0] == 200
    assert (folders.input / "clip.mp4").read_bytes() == b"\0not media\xff"


async def test_concurrent_uploads_of_one_name_all_survive(client: Client, folders: Folders) -> None:
    contents = [str(index).encode() for index in range(12)]
    answers = await asyncio.gather(*(upload(client, content, "a.bin") for content in contents))
    stored = [(folders.input / answer["name"]).read_bytes() for _, answer in answers]
    assert stored == contents


def png(colour: tuple[int, ...], mode: str = "RGBA", size: tuple[int, int] = (4, 4)) -> bytes:
    buffer = io.BytesIO()
    texts = PngInfo()
    texts.add_text("prompt", '{"1": {}}')
    Image.new(mode, size, colour).save(buffer, "PNG", pnginfo=texts)
    return buffer.getvalue()


async def send_mask(client: Client, mask: bytes, reference: Any) -> aiohttp.ClientResponse:
    text = reference if isinstance(reference, str) else json.dumps(reference)
    return await client.post("/upload/mask", data=form(mask, "masked.png", original_ref=text))


async def test_mask_replaces_the_alpha_and_keeps_the_metadata(client: Client, folders: Folders) -> None:
    (folders.output / "a.png").write_bytes(png((255, 0, 0), "RGB"))
    answer = await send_mask(client, png((0, 0, 0, 77)), {"filename": "a.png"})
    assert await answer.json() == {"name": "masked.png", "subfolder": "", "type": "input"}
    masked = Image.open(folders.input / "masked.png")
    assert masked.getpixel((0, 0)) == (255, 0, 0, 77)
    assert masked.info["prompt"] == '{"1": {}}'


@pytest.mark.parametrize(
    ("reference", "status"),
    [
        ({"filename": "nope.png"}, 400),
        ({"filename": "../a.png"}, 400),
        ({"filename": "a.png", "subfolder": "../.."}, 403),
        ({"filename": "a.png", "type": "bogus"}, 400),
        ({}, 400),
        ("{", 400),
        ("[]", 400),
    ],
)
async def test_mask_over_a_bad_reference_is_refused(
    client: Client, folders: Folders, reference: Any, status: int
) -> None:
    (folders.output / "a.png").write_bytes(png((255, 0, 0), "RGB"))
    assert (await send_mask(client, png((0, 0, 0, 77)), reference)).status == status


async def test_mask_of_another_size_is_refused(client: Client, folders: Folders) -> None:
    (folders.output / "a.png").write_bytes(png((255, 0, 0), "RGB"))
    answer = await send_mask(client, png((0, 0, 0, 77), size=(8, 8)), {"filename": "a.png"})
    assert answer.status == 400


async def test_subfolder_that_is_a_file_is_refused(client: Client) -> None:
    await upload(client, b"x", "a.png")
    for subfolder in ("a.png", "a.png/b", "x/" * 1500):
        async with asyncio.timeout(60):
            assert (await upload(client, b"y", "b.png", subfolder=subfolder))[0] == 400


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        (b'name="type"\r\nContent-Type: text/plain; charset=bogus', b"input"),
        (b'name="_charset_"', b"bogus"),
        (b'name="_charset_"', b"x" * 100),
        (b'name="type"\r\nContent-Transfer-Encoding: bogus', b"input"),
        (b'name="image"; filename="\0"', b"x"),
        (b'name="image"; filename="\xff.png"', b"x"),
        (b'name="image"; filename="a.png"\r\nX: ' + b"y" * 20_000, b"x"),
        (b'name="image"; filename="a.png"\r\nContent-Type: multipart/mixed', b"x"),
    ],
)
async def test_malformed_part_is_a_400(client: Client, headers: bytes, content: bytes) -> None:
    parts = [(headers, content), (b'name="image"; filename="b.png"', b"x"), (b'name="type"', b"input")]
    body = b"".join(b"--X\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % part for part in parts)
    headers_out = {"Content-Type": "multipart/form-data; boundary=X"}
    answer = await client.post("/upload/image", data=body + b"--X--\r\n", headers=headers_out)
    assert answer.status == 400
    assert "error" in await answer.json()
