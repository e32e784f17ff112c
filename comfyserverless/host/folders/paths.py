"""Be `folder_paths`: one object over the table, whose methods the module offers as functions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from comfyserverless.host.bridge import bridge
from comfyserverless.host.folders import listing, naming
from comfyserverless.host.folders.listing import Listings
from comfyserverless.host.folders.table import FolderTable, canonical_key
from comfyserverless.host.settings import settings


class FolderPaths:
    """Where everything is. Folders that packs set hold for a server without accounts, nobody else's."""

    def __init__(self) -> None:
        self.base_path = settings().base
        self.models_dir = settings().models
        self.table = FolderTable(settings())
        self.listings = Listings(self.table)
        #: kind -> (the server's folder, the one a pack has put in its place).
        self._set: dict[str, tuple[str, str]] = {}

    def directory(self, kind: str) -> str:
        """Return the folder of `input`, `output`, `temp` or `user` for whoever runs now."""
        actual = str(getattr(bridge().places, kind))
        ours, theirs = self._set.get(kind, ("", ""))
        return theirs if ours == actual else actual

    def set_directory(self, kind: str, path: str) -> None:
        """Put another folder in the place of the server's own."""
        self._set[kind] = (str(getattr(bridge().places, kind)), path)

    def get_directory_by_type(self, kind: str) -> str | None:
        """Return the folder of input, output or temp; None for another word."""
        return self.directory(kind) if kind in ("input", "output", "temp") else None

    def get_folder_paths(self, key: str) -> list[str]:
        """Return the search paths of a key. Raises KeyError."""
        return self.table.paths(key)

    def get_filename_list(self, key: str) -> list[str]:
        """Return the names of the files of a key, sorted. Raises KeyError."""
        return self.listings.names(key)

    def get_full_path(self, key: str, name: str) -> str | None:
        """Return the first file of that name, None if there is none."""
        return self.listings.full_path(key, name)

    def get_full_path_or_raise(self, key: str, name: str) -> str:
        """Return the first file of that name. Raises FileNotFoundError."""
        path = self.listings.full_path(key, name)
        if path is None:
            raise FileNotFoundError(f"Model in folder '{key}' with filename '{name}' not found.")
        return path

    def add_model_folder_path(self, folder_name: str, full_folder_path: str, is_default: bool = False) -> None:
        """Add a search path to a key, in front if it is the default."""
        self.table.add(folder_name, full_folder_path, is_default=is_default)

    def annotated_filepath(self, name: str) -> tuple[str, str | None]:
        """Return a name without its annotation, and the folder that it names (None: no annotation)."""
        bare, kind = naming.split_annotation(name)
        return bare, None if kind is None else self.directory(kind)

    def get_annotated_filepath(self, name: str, default_dir: str | None = None) -> str:
        """Return the path of an annotated name. Raises ValueError if it leads out of its folder."""
        bare, folder = self.annotated_filepath(name)
        return naming.join_inside(folder or default_dir or self.directory("input"), bare)

    def exists_annotated_filepath(self, name: str) -> bool:
        """Tell whether an annotated name is there, inside of its folder."""
        try:
            return os.path.exists(self.get_annotated_filepath(name))
        except ValueError:
            return False

    def get_save_image_path(
        self, filename_prefix: str, output_dir: str, image_width: int = 0, image_height: int = 0
    ) -> tuple[str, str, int, str, str]:
        """Return (folder, name, counter, subfolder, prefix) for a file to be saved."""
        return naming.save_path(filename_prefix, output_dir, image_width, image_height)

    def get_input_subfolders(self) -> list[str]:
        """Return the folders below the input folder, relative and sorted."""
        root = Path(self.directory("input"))
        found = (Path(at).relative_to(root).as_posix() for at, _, _ in os.walk(root))
        return sorted(name for name in found if name != ".")

    def recursive_search(
        self, directory: str, excluded_dir_names: Collection[str] | None = None
    ) -> tuple[list[str], dict[str, float]]:
        """Return the files below a folder, and when its directories changed."""
        return listing.walk(directory, excluded_dir_names or ())

    def filter_files_extensions(self, files: Iterable[str], extensions: Collection[str]) -> list[str]:
        """Return the names with one of the extensions, sorted."""
        return listing.filter_extensions(files, extensions)

    def filter_files_content_types(self, files: Iterable[str], content_types: Iterable[str]) -> list[str]:
        """Return the names of files of these kinds (image, video, audio, model)."""
        return listing.filter_contents(files, content_types)

    def get_public_user_directory(self, user_id: str) -> str | None:
        """Return the folder of a user; None for names of system folders, which are nobody's."""
        if not user_id or user_id.startswith("__"):
            return None
        return naming.join_inside(self.directory("user"), user_id)

    def get_system_user_directory(self, name: str = "system") -> str:
        """Return a folder for what belongs to the server or a pack. Raises ValueError for other than a word."""
        if not name or name.startswith("_") or not name.replace("_", "").isalnum():
            raise ValueError(f"{name!r} is no name of a system folder")
        return os.path.join(self.directory("user"), f"__{name}")

    def map_legacy(self, folder_name: str) -> str:
        """Return the key that an old name stands for."""
        return canonical_key(folder_name)


def names_of(paths: FolderPaths) -> dict[str, Any]:
    """Return what the module `folder_paths` offers beside its four folders, by name."""
    methods = {
        name: getattr(paths, name)
        for name in dir(paths)
        if not name.startswith("_")
        and callable(getattr(paths, name))
        and name not in ("directory", "set_directory")
    }
    return methods | {
        "base_path": paths.base_path,
        "models_dir": paths.models_dir,
        "folder_names_and_paths": paths.table.entries,
        "supported_pt_extensions": paths.table.extensions,
        "filename_list_cache": paths.listings.cache,
        "extension_mimetypes_cache": dict(listing.EXTRA_TYPES),
        "CacheHelper": listing.CacheHelper,
        "cache_helper": listing.CacheHelper(),
        "__file__": os.path.join(paths.base_path, "folder_paths.py"),
    }
