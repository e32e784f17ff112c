"""Hold solids and vector pictures as nodes pass them on."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import IO

import torch


class VOXEL:
    """Solids made of cubes. data: [B, X, Y, Z]."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data


class MESH:
    """Solids made of triangles. vertices: [B, N, 3]; faces: [B, M, 3] integers; others per vertex."""

    def __init__(
        self,
        vertices: torch.Tensor,
        faces: torch.Tensor,
        uvs: torch.Tensor | None = None,
        vertex_colors: torch.Tensor | None = None,
        texture: torch.Tensor | None = None,
        **others: object,
    ) -> None:
        self.vertices = vertices
        self.faces = faces
        self.uvs = uvs
        self.vertex_colors = vertex_colors
        self.texture = texture
        for name, value in others.items():
            setattr(self, name, value)


class SVG_TEXT:
    """Vector pictures, each a file in memory."""

    def __init__(self, data: list[io.BytesIO]) -> None:
        if not isinstance(data, list) or not all(isinstance(item, io.BytesIO) for item in data):
            raise TypeError("SVG takes a list of BytesIO")
        self.data = data

    def combine(self, other: SVG_TEXT) -> SVG_TEXT:
        """Return the pictures of both."""
        return SVG_TEXT([*self.data, *other.data])

    @staticmethod
    def combine_all(pictures: list[SVG_TEXT]) -> SVG_TEXT:
        """Return the pictures of all."""
        return SVG_TEXT([item for picture in pictures for item in picture.data])


SVG_TEXT.__name__ = SVG_TEXT.__qualname__ = "SVG"


class File3DData:
    """A file with a 3D model: a path or a stream, and its format (`glb`)."""

    def __init__(self, source: str | IO[bytes], file_format: str = "") -> None:
        self._source = source
        suffix = Path(source).suffix if isinstance(source, str) else ""
        self.format = re.sub(r"^\.", "", file_format or suffix).lower()

    @property
    def is_disk_backed(self) -> bool:
        """Tell whether it is a file on disk."""
        return isinstance(self._source, str)

    def get_source(self) -> str | IO[bytes]:
        """Return the path or the stream, from its beginning."""
        if not isinstance(self._source, str):
            self._source.seek(0)
        return self._source

    def get_data(self) -> io.BytesIO:
        """Return the content."""
        return io.BytesIO(self.get_bytes())

    def get_bytes(self) -> bytes:
        """Return the content."""
        source = self.get_source()
        return Path(source).read_bytes() if isinstance(source, str) else source.read()

    def save_to(self, path: str) -> str:
        """Write the content to a file."""
        source = self.get_source()
        if isinstance(source, str):
            shutil.copyfile(source, path)
        else:
            Path(path).write_bytes(source.read())
        return path


File3DData.__name__ = File3DData.__qualname__ = "File3D"
