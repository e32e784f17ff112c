"""Find files by ComfyUI's folder keys: model search paths, extra paths, and the input/output/temp bases.

Names are relative to a search path; the first path that has a name wins. Nothing outside a base is ever
returned for a name that a client sent.
"""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from comfyserverless.core.config import Folders
from comfyserverless.core.errors import ConfigError, PromptError
from comfyserverless.core.hosting import FolderInfo
from comfyserverless.core.values import FileRef

MODEL_EXTENSIONS = frozenset({".ckpt", ".pt", ".pt2", ".bin", ".pth", ".safetensors", ".pkl", ".sft"})

#: Folder key -> directories below a models root, in search order; all with MODEL_EXTENSIONS.
_MODEL_DIRECTORIES: dict[str, tuple[str, ...]] = {
    "checkpoints": ("checkpoints",),
    "configs": ("configs",),
    "loras": ("loras",),
    "vae": ("vae",),
    "text_encoders": ("text_encoders", "clip"),
    "diffusion_models": ("unet", "diffusion_models"),
    "clip_vision": ("clip_vision",),
    "style_models": ("style_models",),
    "embeddings": ("embeddings",),
    "diffusers": ("diffusers",),
    "vae_approx": ("vae_approx",),
    "controlnet": ("controlnet", "t2i_adapter"),
    "gligen": ("gligen",),
    "upscale_models": ("upscale_models",),
    "latent_upscale_models": ("latent_upscale_models",),
    "hypernetworks": ("hypernetworks",),
    "photomaker": ("photomaker",),
    "classifiers": ("classifiers",),
    "model_patches": ("model_patches",),
    "audio_encoders": ("audio_encoders",),
}
_OTHER_EXTENSIONS: dict[str, frozenset[str]] = {
    "configs": frozenset({".yaml"}),
    "diffusers": frozenset({"folder"}),
    "classifiers": frozenset({""}),
    "custom_nodes": frozenset(),
}
#: Models that nodes save below the output folder show up in the loaders too.
_SAVED_MODELS = (
    ("checkpoints", "checkpoints"),
    ("text_encoders", "clip"),
    ("vae", "vae"),
    ("diffusion_models", "diffusion_models"),
    ("loras", "loras"),
)
_ALIASES = {"unet": "diffusion_models", "clip": "text_encoders"}
_BASE_KINDS = ("input", "output", "temp")


def demo_models_folder() -> Path:
    """Return the models root that ships with the package."""
    return Path(__file__).resolve().parent.parent / "demo" / "models"


def canonical_key(key: str) -> str:
    """Return the folder key that an alias stands for; other texts stay as they are."""
    return _ALIASES.get(key, key)


def file_ref(path: str) -> FileRef:
    """Name a file together with what changes when it is replaced. Raises OSError if it is gone."""
    status = os.stat(path)
    return FileRef(path, status.st_size, status.st_mtime_ns)


class FolderPaths:
    """Answer what is where; re-reads a folder only after one of its directories changed."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._bases: dict[str, Path] = {"input": folders.input, "output": folders.output, "temp": folders.temp}
        self._paths: dict[str, list[str]] = {}
        self._extensions: dict[str, frozenset[str]] = {}
        #: folder key -> (names, (directory, mtime) of every directory that was read).
        self._listings: dict[str, tuple[list[str], dict[str, int]]] = {}
        for key, directories in _MODEL_DIRECTORIES.items():
            self._extensions[key] = _OTHER_EXTENSIONS.get(key, MODEL_EXTENSIONS)
            self._paths[key] = [str(root / name) for root in folders.models for name in directories]
        self._extensions["custom_nodes"] = _OTHER_EXTENSIONS["custom_nodes"]
        self._paths["custom_nodes"] = [str(folders.custom_nodes)]
        for key, name in _SAVED_MODELS:
            self._paths[key].append(str(folders.output / name))
        for file in folders.extra_model_paths:
            _apply_extra_paths(self, file)

    def keys(self) -> list[str]:
        """List the folder keys (canonical names only)."""
        return list(self._paths)

    def paths(self, key: str) -> list[str]:
        """Return the search paths of a key or alias. Raises KeyError for an unknown one."""
        return list(self._paths[canonical_key(key)])

    def extensions(self, key: str) -> frozenset[str]:
        """Return the extensions of a key (empty: every file). Raises KeyError for an unknown one."""
        return self._extensions[canonical_key(key)]

    def add_path(self, key: str, path: str, *, is_default: bool = False) -> None:
        """Add a search path at the end, or in front if it is the default; a new key accepts every file."""
        key = canonical_key(key)
        paths = self._paths.setdefault(key, [])
        self._extensions.setdefault(key, frozenset())
        self._listings.pop(key, None)
        if path in paths:
            paths.remove(path)
        paths.insert(0 if is_default else len(paths), path)

    def adopt(self, key: str, info: FolderInfo) -> None:
        """Search for a key as node packs do; a key that is new to the server is added."""
        key = canonical_key(key)
        self._paths[key], self._extensions[key] = list(info.paths), frozenset(info.extensions)
        self._listings.pop(key, None)

    def names(self, key: str) -> list[str]:
        """List relative names over all paths of a key, sorted, without repeats. Raises KeyError if unknown."""
        key = canonical_key(key)
        cached = self._listings.get(key)
        if cached is None or any(_mtime_ns(path) != mtime for path, mtime in cached[1].items()):
            cached = self._listings[key] = self._read(key)
        return list(cached[0])

    def full_path(self, key: str, name: str) -> str | None:
        """Return the first existing file of that name; `..` cannot climb out of a search path."""
        relative = os.path.relpath(os.path.join("/", name), "/")
        for root in self._paths.get(canonical_key(key), ()):
            path = os.path.join(root, relative)
            if os.path.isfile(path) and self.is_allowed(key, root, relative):
                return path
        return None

    def find(self, key: str, name: str) -> FileRef:
        """Return a model file. Raises PromptError naming the file and the folder if it is missing."""
        path = self.full_path(key, name)
        if path is None:
            raise PromptError(f"Model file {name!r} was not found in the {key!r} folder")
        return file_ref(path)

    def is_allowed(self, key: str, root: str, name: str) -> bool:
        """Tell whether a model file below one of the search paths of a key may be used, and seen."""
        return True

    def embedding_folders(self) -> tuple[str, ...]:
        """Return the folders in which workers look for textual inversions."""
        return tuple(self.paths("embeddings"))

    def base(self, kind: str) -> Path:
        """Return the base folder of `input`, `output` or `temp`. Raises KeyError for another word."""
        return self._bases[kind]

    def input_names(self, content: str) -> list[str]:
        """List the files at the top of the input folder; content: `image` or `latent`."""
        try:
            entries = [entry.name for entry in os.scandir(self._bases["input"]) if entry.is_file()]
        except FileNotFoundError:
            return []
        if content == "latent":
            return sorted(name for name in entries if name.endswith(".latent"))
        return sorted(name for name in entries if _is_image_name(name))

    def has_input(self, name: str) -> bool:
        """Tell whether an annotated name (`a.png [output]`) is a file inside its base folder."""
        return self._annotated_path(name) is not None

    def input_identity(self, name: str) -> FileRef | None:
        """Return path, size and time of an annotated input name, None if there is no such file."""
        path = self._annotated_path(name)
        return None if path is None else file_ref(path)

    def find_input(self, name: str) -> FileRef:
        """Return an uploaded file by annotated name. Raises PromptError if it is missing."""
        path = self._annotated_path(name)
        if path is None:
            raise PromptError(f"Input file {name!r} was not found")
        return file_ref(path)

    def _annotated_path(self, name: str) -> str | None:
        kind = "input"
        for word in _BASE_KINDS:
            if name.endswith(f" [{word}]"):
                kind, name = word, name[: -len(word) - 3]
        if not name or "\0" in name:
            return None
        base = os.path.realpath(self._bases[kind])
        path = os.path.realpath(os.path.join(base, name))
        inside = os.path.commonpath((base, path)) == base
        return path if inside and os.path.isfile(path) else None

    def _take_over(self, other: FolderPaths, bases: Mapping[str, Path]) -> None:
        """Search where another object searches, with these base folders and the models saved there."""
        self._extensions = dict(other._extensions)
        self._paths = {key: list(paths) for key, paths in other._paths.items()}
        for key, name in _SAVED_MODELS:
            theirs, ours = str(other.base("output") / name), str(bases["output"] / name)
            self._paths[key] = [ours if path == theirs else path for path in self._paths[key]]
        self._bases = dict(bases)

    def _read(self, key: str) -> tuple[list[str], dict[str, int]]:
        seen: dict[str, int] = {}
        names: set[str] = set()
        extensions = self._extensions[key]
        for root in self._paths[key]:
            seen[root] = _mtime_ns(root)
            for directory, files in _walk(root):
                seen[directory] = _mtime_ns(directory)
                prefix = os.path.relpath(directory, root)
                kept = (name for name in files if _is_kept(name, extensions))
                below = (name if prefix == "." else os.path.join(prefix, name) for name in kept)
                names.update(name for name in below if self.is_allowed(key, root, name))
        return sorted(names), seen


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (directory, files), following links, each real directory once, without .git."""
    visited: set[str] = set()
    for directory, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(directory)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = sorted(name for name in subfolders if name != ".git")
        yield directory, files


def _is_kept(name: str, extensions: frozenset[str]) -> bool:
    return not extensions or os.path.splitext(name)[1].lower() in extensions


def _is_image_name(name: str) -> bool:
    if name.lower().endswith(".webp"):
        return True
    return (mimetypes.guess_type(name, strict=False)[0] or "").startswith("image/")


def _mtime_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def _apply_extra_paths(files: FolderPaths, file: Path) -> None:
    """Read an extra_model_paths file: sections of folder keys with one path a line (or a list)."""
    import yaml  # only installations with such a file pay for the import

    try:
        sections = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"--extra-model-paths-config {file}: {exc.strerror}") from exc
    except (UnicodeDecodeError, yaml.YAMLError) as exc:
        reason = " ".join(str(exc).split())
        raise ConfigError(f"--extra-model-paths-config {file}: {reason}") from exc
    if sections is None:
        return
    if not isinstance(sections, dict):
        raise ConfigError(
            f"--extra-model-paths-config {file}: expected sections, got {type(sections).__name__}"
        )
    for name, section in sections.items():
        if section is None:
            continue
        if not isinstance(section, dict):
            raise ConfigError(f"--extra-model-paths-config {file}: section {name!r} must hold folder keys")
        _apply_section(files, file, section)


def _apply_section(files: FolderPaths, file: Path, section: dict[str, object]) -> None:
    is_default = bool(section.get("is_default", False))
    base = str(section.get("base_path") or "")
    base = os.path.expandvars(os.path.expanduser(base))
    root = os.path.normpath(os.path.join(file.resolve().parent, base))
    for key, value in section.items():
        if key in ("base_path", "is_default") or value is None:
            continue
        lines = value if isinstance(value, list) else str(value).split("\n")
        for line in lines:
            path = os.path.expandvars(os.path.expanduser(str(line)))
            if path.strip():
                files.add_path(str(key), os.path.normpath(os.path.join(root, path)), is_default=is_default)
