"""Re-encode pictures for the page with Pillow, which is imported when the first one is asked for.

All functions block; handlers call them through `in_picture_thread`. A large picture takes seconds and more than
a gigabyte while it is decoded, so only few at a time are, and threads for other work stay free.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from comfyserverless.core.errors import PromptError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 178_956_970
"""Above this a picture is refused: its decoded form would fill memory (Pillow's own error limit)."""

#: What Pillow may decode: pictures only. Its other formats include ones that start a program (EPS).
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "ICO", "PPM", "TGA", "JPEG2000")
_LONGEST_SIDE_PX = {"webp": 16_383, "jpeg": 65_500}
_threads = ThreadPoolExecutor(2, thread_name_prefix="pictures")

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_picture_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run one of these functions in one of the two threads for pictures."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **kwargs))


class PictureError(PromptError):
    """The file is not a picture that can be decoded."""


def open_picture(source: str | io.BytesIO) -> Image:
    """Decode a picture. Raises PictureError."""
    from PIL import Image

    try:
        with Image.open(source, formats=_formats()) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise PictureError(f"The picture has more than {MAX_PIXELS} pixels")
            picture.load()
    except PictureError:
        raise
    except Exception as exc:  # the border to decoders: hostile bytes make them raise anything
        raise PictureError("The file is not a picture that can be decoded") from exc
    return picture


@cache
def _formats() -> tuple[str, ...]:
    """List the formats that this build of Pillow has."""
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def encode_preview(path: str, kind: str, quality_ratio: int, *, is_opaque: bool) -> bytes:
    """Re-encode as `webp` or `jpeg`; is_opaque drops alpha. Quality is Pillow's 1-100. Raises PictureError."""
    picture = open_picture(path)
    if is_opaque or kind == "jpeg" or picture.mode not in ("RGB", "RGBA", "L"):
        has_alpha = "A" in picture.getbands() or "transparency" in picture.info
        picture = picture.convert("RGBA" if has_alpha and not is_opaque and kind != "jpeg" else "RGB")
    return _encode(picture, kind, quality=quality_ratio)


def encode_without_alpha(path: str) -> bytes:
    """Return the colours as PNG. Raises PictureError."""
    return _encode(open_picture(path).convert("RGB"), "png")


def encode_alpha(path: str) -> bytes:
    """Return the alpha as a PNG of black pixels, opaque where there is no alpha. Raises PictureError."""
    from PIL import Image

    picture = open_picture(path).convert("RGBA")
    shown = Image.new("RGBA", picture.size)
    shown.putalpha(picture.getchannel("A"))
    return _encode(shown, "png")


def with_alpha_of(original_path: str, mask: bytes) -> bytes:
    """Return the original as PNG with another picture's alpha; its texts stay. Raises PictureError."""
    from PIL.PngImagePlugin import PngInfo

    original = open_picture(original_path)
    texts = PngInfo()
    for key, value in getattr(original, "text", {}).items():
        texts.add_text(key, value)
    alpha = open_picture(io.BytesIO(mask)).convert("RGBA").getchannel("A")
    if alpha.size != original.size:
        raise PictureError(f"The mask is {alpha.size}, the original is {original.size}")
    picture = original.convert("RGBA")
    picture.putalpha(alpha)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=4, pnginfo=texts)
    return buffer.getvalue()


def encode_thumbnail(source: str | io.BytesIO) -> bytes:
    """Return a model's preview picture as WebP. Raises PictureError."""
    return _encode(open_picture(source).convert("RGB"), "webp", quality=85)


def _encode(picture: Image, kind: str, **options: int) -> bytes:
    """Encode, shrunk if a side is longer than the format can hold."""
    longest_px = _LONGEST_SIDE_PX.get(kind)
    if longest_px is not None and max(picture.size) > longest_px:
        picture.thumbnail((longest_px, longest_px))
    buffer = io.BytesIO()
    picture.save(buffer, format=kind.upper(), **options)
    return buffer.getvalue()
