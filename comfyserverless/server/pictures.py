"""Re-encode pictures for the page with Pillow, which is imported when the first one is asked for.

All functions block; handlers call them in a thread.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from comfyserverless.core.errors import PromptError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 178_956_970
"""Above this a picture is refused: its decoded form would fill memory (Pillow's own error limit)."""


class PictureError(PromptError):
    """The file is not a picture that can be decoded."""


def open_picture(source: str | io.BytesIO) -> Image:
    """Decode a picture. Raises PictureError."""
    from PIL import Image

    try:
        picture = Image.open(source)
        if picture.width * picture.height > MAX_PIXELS:
            raise PictureError(f"The picture has more than {MAX_PIXELS} pixels")
        picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:
        raise PictureError("The file is not a picture that can be decoded") from exc
    return picture


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
    buffer = io.BytesIO()
    picture.save(buffer, format=kind.upper(), **options)
    return buffer.getvalue()
