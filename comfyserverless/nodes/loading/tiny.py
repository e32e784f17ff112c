"""Offer tiny autoencoders among the files of a loader: two files of the folder `vae_approx` are one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyserverless.core.values import TINY_AUTOENCODERS
from comfyserverless.graph.declaration import FileCatalog

TINY_FOLDER = "vae_approx"


def tiny_files(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return (encoder, decoder) of each tiny autoencoder of which both files are among `names`, by its name."""
    found = {}
    for tiny in TINY_AUTOENCODERS:
        encoder, decoder = (_first(names, f"{tiny}_{half}.") for half in ("encoder", "decoder"))
        if encoder is not None and decoder is not None:
            found[tiny] = encoder, decoder
    return found


def tiny_choices(catalog: FileCatalog) -> Sequence[str]:
    """List the tiny autoencoders that a loader offers after its files."""
    return list(tiny_files(catalog.names(TINY_FOLDER)))


def vae_token(catalog: FileCatalog, values: Mapping[str, Any]) -> Any:
    """Return a change token of what the input `vae_name` names: one file, or the two of a tiny autoencoder."""
    name = values.get("vae_name")
    if not isinstance(name, str):
        return None
    tiny = tiny_files(catalog.names(TINY_FOLDER)).get(name) if name in TINY_AUTOENCODERS else None
    if tiny is None:
        return catalog.find("vae", name)
    return [catalog.find(TINY_FOLDER, file) for file in tiny]


def _first(names: Sequence[str], beginning: str) -> str | None:
    return next((name for name in names if name.startswith(beginning)), None)
