"""Choose names for saved files as ComfyUI does, below the folders of whoever runs, and say what is embedded."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyserverless.host.api.io.base import plain
from comfyserverless.host.api.ui.results import SavedResult


@dataclass(slots=True)
class SavePlace:
    """Where the files of one save go: `{name}_{counter:05}_.{extension}` in a folder that exists."""

    folder: str
    subfolder: str
    name: str
    counter: int
    kind: str

    @classmethod
    def of(cls, prefix: str, kind: Any, width_px: int = 0, height_px: int = 0) -> SavePlace:
        """Find the place of a prefix with its %tokens%; kind: `output`, `temp` or `input`.

        Goes through the module `folder_paths`, which packs may have changed. Raises ValueError for another
        kind, or a prefix that leaves its folder.
        """
        paths: Any = importlib.import_module("folder_paths")
        word = str(plain(kind))
        base = paths.get_directory_by_type(word)
        if base is None:
            raise ValueError(f"{word!r} is no folder to save to: output, temp or input")
        folder, name, counter, subfolder, _ = paths.get_save_image_path(prefix, base, width_px, height_px)
        return cls(str(folder), str(subfolder), str(name), int(counter), word)

    def write(self, content: bytes, extension: str, index: int = 0) -> SavedResult:
        """Write a file under the next free name; index: in the batch. It is whole when it gets its name."""
        name = self.name.replace("%batch_num%", str(index))
        part = os.path.join(self.folder, f".{uuid.uuid4().hex}.part")
        try:
            with open(part, "wb") as file:
                file.write(content)
            while True:
                filename = f"{name}_{self.counter:05}_.{extension}"
                self.counter += 1
                with contextlib.suppress(FileExistsError):
                    os.link(part, os.path.join(self.folder, filename))
                    return SavedResult(filename, self.subfolder, self.kind)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)


def embedded_texts(cls: Any) -> dict[str, str]:
    """Return what a saved file carries, name -> JSON text: the prompt, and all of extra_pnginfo.

    cls: the running node class, whose hidden inputs say it; None for nothing. Empty with --disable-metadata.
    """
    args = importlib.import_module("comfy.cli_args").args
    hidden = getattr(cls, "hidden", None)
    if hidden is None or args.disable_metadata:
        return {}
    texts = {} if hidden.prompt is None else {"prompt": json.dumps(hidden.prompt)}
    extra = hidden.extra_pnginfo
    if isinstance(extra, Mapping):
        texts |= {str(key): json.dumps(value) for key, value in extra.items()}
    return texts
