"""/view serves files of its folders only, and nothing that would run in the page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from PIL import Image

from comfyserverless.core.config import Folders

Client = TestClient[Any, Any]
SIZE = (4, 3)
HALF_RED = (255, 0, 0, 128)


@pytest.fixture(autouse=True)
def pictures(folders: Folders) -> None:
    (folders.output / "sub").mkdir()
    Image.new("RGBA", SIZE, HALF_RED).save(folders.output / "a.png")
    Image.new("RGBA", SIZE, HALF_RED).save(folders.output / "sub" / "b.png")
    Image.new("RGB", SIZE, "blue").save(folders.input / "c.png")
    (folders.base / "secret.png").write_bytes(b"secret")
    (folders.output / "escape").symlink_to(folders.base)
    (folders.output / "link.png").symlink_to(folders.base / "secret.png")


async def picture(client: Client, query: str) -> Image.Image:
    answer = await client.get(f"/view?{query}")
    assert answer.status == 200
    return Image.open(io.BytesIO(await answer.read()))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("filename=a.png", 200),
        ("filename=b.png&subfolder=sub", 200),
        ("filename=c.png&type=input", 200),
        ("filename=c.png [input]", 200),
        ("filename=c.png%20%5Binput%5D&type=temp", 200),
        ("filename=elsewhere/a.png", 200),
        ("", 404),
        ("filename=", 404),
        ("filename=nope.png", 404),
        ("filename=sub", 404),
        ("filename=blake3:abc", 404),
        ("filename=b.png&subfolder=nope", 404),
        ("filename=" + "a" * 300, 404),
        ("filename=a.png&type=bogus", 400),
        ("filename=/etc/passwd", 400),
        ("filename=../secret.png", 400),
        ("filename=%2e%2e%2fsecret.png", 400),
        ("filename=a%00.png", 400),
        ("filename=secret.png&subfolder=..", 403),
        ("filename=secret.png&subfolder=sub/../..", 403),
        ("filename=passwd&subfolder=/etc", 403),
        ("filename=secret.png&subfolder=escape", 403),
        ("filename=link.png", 403),
        ("filename=a.png&subfolder=%00", 403),
    ],
)
async def test_only_files_inside_their_folder_are_served(client: Client, query: str, status: int) -> None:
    answer = await client.get(f"/api/view?{query}")
    assert answer.status == status
    assert b"secret" not in await answer.read()


async def test_raw_file_has_validators_ranges_and_an_inline_name(client: Client) -> None:
    answer = await client.get("/view?filename=a.png")
    assert answer.content_type == "image/png"
    assert answer.headers["Content-Disposition"] == 'filename="a.png"'
    assert "ETag" in answer.headers
    assert "Last-Modified" in answer.headers
    part = await client.get("/view?filename=a.png", headers={"Range": "bytes=1-3"})
    assert part.status == 206
    assert await part.read() == b"PNG"
    again = await client.get("/view?filename=a.png", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304


@pytest.mark.parametrize(
    ("preview", "kind"),
    [
        ("webp;90", "webp"),
        ("jpeg;80", "jpeg"),
        ("jpeg", "jpeg"),
        ("gif", "webp"),
        ("", "webp"),
        ("webp;x", "webp"),
        ("webp;%C2%B2", "webp"),
        ("webp;" + "9" * 5000, "webp"),
    ],
)
async def test_preview_is_reencoded(client: Client, preview: str, kind: str) -> None:
    answer = await client.get(f"/view?filename=a.png&preview={preview}")
    assert answer.content_type == f"image/{kind}"
    assert answer.headers["Content-Disposition"] == 'filename="a.png"'
    shown = Image.open(io.BytesIO(await answer.read()))
    assert (shown.format or "").lower() == kind
    assert shown.size == SIZE


async def test_preview_quality_changes_the_file(client: Client, folders: Folders) -> None:
    noise = Image.effect_noise((64, 64), 80)
    noise.save(folders.output / "noise.png")
    small, large = [
        await (await client.get(f"/view?filename=noise.png&preview=jpeg;{quality}")).read()
        for quality in (5, 95)
    ]
    assert len(small) < len(large)


async def test_channels(client: Client) -> None:
    colours = await picture(client, "filename=a.png&channel=rgb")
    assert (colours.mode, colours.getpixel((0, 0))) == ("RGB", (255, 0, 0))
    alpha = await picture(client, "filename=a.png&channel=a")
    assert (alpha.mode, alpha.getpixel((0, 0))) == ("RGBA", (0, 0, 0, 128))
    opaque = await picture(client, "filename=c.png&type=input&channel=a")
    assert opaque.getpixel((0, 0)) == (0, 0, 0, 255)


async def test_preview_wins_over_channel(client: Client) -> None:
    assert (await picture(client, "filename=a.png&channel=a&preview=jpeg")).format == "WEBP"
    colours = await picture(client, "filename=a.png&channel=rgb&preview=webp")
    assert (colours.format, colours.mode) == ("WEBP", "RGB")


async def test_file_that_is_no_picture_has_no_preview(client: Client, folders: Folders) -> None:
    (folders.output / "movie.mp4").write_bytes(b"not a picture")
    answer = await client.get("/view?filename=movie.mp4&preview=webp")
    assert answer.status == 400
    assert str(folders.base) not in await answer.text()
    assert (await client.get("/view?filename=movie.mp4")).content_type == "video/mp4"


@pytest.mark.parametrize("name", ["a.html", "a.svg", "a.js", "a.css", "a.xml", "a.xhtml", "a.mht"])
async def test_active_files_are_attachments(client: Client, folders: Folders, name: str) -> None:
    (folders.output / name).write_text("<script>alert(1)</script>")
    answer = await client.get(f"/view?filename={name}")
    assert answer.content_type == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_svg_is_shown_as_a_picture_only(client: Client, folders: Folders) -> None:
    (folders.output / "a.svg").write_text("<svg/>")
    answer = await client.get("/view?filename=a.svg", headers={"Sec-Fetch-Dest": "image"})
    assert answer.content_type == "image/svg+xml"
    assert answer.headers["Vary"] == "Sec-Fetch-Dest"
    assert "no-store" in answer.headers["Cache-Control"]
    page = await client.get("/view?filename=a.svg", headers={"Sec-Fetch-Dest": "document"})
    assert page.content_type == "application/octet-stream"


async def test_output_folder_may_be_a_link(client: Client, folders: Folders, tmp_path: Path) -> None:
    folders.output.rename(tmp_path / "moved")
    folders.output.symlink_to(tmp_path / "moved")
    assert (await client.get("/view?filename=a.png")).status == 200


@pytest.mark.parametrize(("preview", "longest_px"), [("webp", 16_383), ("jpeg", 65_500)])
async def test_preview_of_a_picture_too_long_for_its_format_is_shrunk(
    client: Client, folders: Folders, preview: str, longest_px: int
) -> None:
    Image.new("L", (longest_px + 1, 2)).save(folders.output / "long.png")
    shown = await picture(client, f"filename=long.png&preview={preview}")
    assert shown.width == longest_px


async def test_only_pictures_are_decoded(client: Client, folders: Folders) -> None:
    Image.new("RGB", SIZE).save(folders.output / "a.eps")
    (folders.output / "disguised.png").write_bytes((folders.output / "a.eps").read_bytes())
    for name in ("a.eps", "disguised.png"):
        assert (await client.get(f"/view?filename={name}&preview=webp")).status == 400, name


async def test_whatever_a_decoder_raises_is_a_400(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Failed to decode frame 0")

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail)
    for query in ("preview=webp", "channel=rgb", "channel=a"):
        assert (await client.get(f"/view?filename=a.png&{query}")).status == 400, query
