"""Lay a prompt's tokens out in chunks of 77: start, up to 75 tokens, end, padding.

A *group* is the tokens of one run of equal weight (or one textual inversion); short groups are kept
together, a group of LONG_GROUP tokens or more is cut where the chunk is full.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.models.text.bpe import END_ID, START_ID, clip_ids
from comfyserverless.models.text.emphasis import split_emphasis

CHUNK_TOKENS = 77
LONG_GROUP_TOKENS = 8
MAX_CHUNKS = 2000
"""More chunks than anybody means to write; all of a prompt's chunks are encoded at once."""

_EMBEDDING_MARK = "embedding:"
_logger = logging.getLogger(__name__)

FindEmbedding = Callable[[str], torch.Tensor | None]
"""Return the vectors [n, D] of a textual inversion by name, or None if there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """One place of a chunk: a vocabulary id, or a vector [D] of a textual inversion; with its weight.

    word counts the groups from 1; marks and padding have 0.
    """

    id: int
    weight: float = 1.0
    word: int = 0
    vector: torch.Tensor | None = None


Chunk = list[Token]


def tokenize(text: str, pad_id: int, find_embedding: FindEmbedding) -> list[Chunk]:
    """Return the chunks of a prompt, at least one, each of CHUNK_TOKENS tokens.

    Raises PromptError for a prompt of more than MAX_CHUNKS chunks.
    """
    groups = [
        group
        for run, weight in split_emphasis(text)
        for piece in _split_embeddings(run)
        for group in _piece_groups(piece, weight, find_embedding)
    ]
    numbered = [
        [Token(t.id, t.weight, at, t.vector) for t in group] for at, group in enumerate(groups, start=1)
    ]
    chunks = _fill(numbered)
    if len(chunks) > MAX_CHUNKS:
        raise PromptError(
            f"the prompt is too long: it takes {len(chunks)} chunks of {CHUNK_TOKENS - 2} tokens, the limit is"
            f" {MAX_CHUNKS}"
        )
    return [_close(chunk, pad_id) for chunk in chunks]


def empty_chunk(pad_id: int) -> Chunk:
    """Return the chunk of the empty prompt, which weights are measured from."""
    return _close([Token(START_ID)], pad_id)


def _split_embeddings(run: str) -> list[str]:
    """Cut a run before each `embedding:` that follows white space; empty pieces go."""
    head, *rest = re.split(f"[ \n]{_EMBEDDING_MARK}", run)
    return [piece for piece in (head, *(_EMBEDDING_MARK + piece for piece in rest)) if piece]


def _piece_groups(piece: str, weight: float, find_embedding: FindEmbedding) -> list[Chunk]:
    """Return the groups of one piece: vectors of the textual inversion that it names, then its text."""
    groups: list[Chunk] = []
    if piece.startswith(_EMBEDDING_MARK):
        vectors, piece = _take_embedding(piece.removeprefix(_EMBEDDING_MARK), find_embedding)
        if vectors is not None:
            groups.append([Token(0, weight, 0, vector) for vector in vectors])
        if not piece:
            return groups
    groups.append([Token(token_id, weight) for token_id in clip_ids(piece)])
    return groups


def _take_embedding(text: str, find_embedding: FindEmbedding) -> tuple[torch.Tensor | None, str]:
    """Split `name, words` into the vectors of `name` and what is left; commas around a name are text."""
    words = text.split()
    if not words:
        return None, ""
    name, rest = words[0], " ".join(words[1:])
    vectors = find_embedding(name)
    bare = name.strip(",")
    if vectors is None and bare != name:
        vectors, rest = find_embedding(bare), f"{name[len(bare) :]} {rest}"
    if vectors is None:
        _logger.warning("textual inversion %r was not found and is ignored", name)
    return vectors, rest


def _fill(groups: list[Chunk]) -> list[Chunk]:
    """Fill chunks (start mark and tokens) with groups in order; the end mark's place stays free."""
    chunks = [[Token(START_ID)]]
    for group in groups:
        left = list(group)
        while left:
            room = CHUNK_TOKENS - 1 - len(chunks[-1])
            if len(left) <= room:
                chunks[-1].extend(left)
                break
            if len(group) >= LONG_GROUP_TOKENS:
                chunks[-1].extend(left[:room])
                left = left[room:]
            chunks.append([Token(START_ID)])
    return chunks


def _close(chunk: Chunk, pad_id: int) -> Chunk:
    closed = [*chunk, Token(END_ID)]
    return closed + [Token(pad_id)] * (CHUNK_TOKENS - len(closed))
