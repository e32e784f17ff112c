"""Tokens and chunks, against ComfyUI's recorded ones and by their laws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.errors import PromptError
from comfyserverless.models.text.bpe import END_ID, START_ID, clip_ids
from comfyserverless.models.text.chunks import CHUNK_TOKENS, MAX_CHUNKS, empty_chunk, tokenize

RECORDED = json.loads((Path(__file__).parents[3] / "parity" / "data" / "tokens.json").read_text())
PADS = {"sd15.l": END_ID, "sdxl.l": END_ID, "sdxl.g": 0}
VECTORS = torch.zeros(3, 4)


def find(name: str) -> torch.Tensor | None:
    return VECTORS if name == "tinystyle" else None


@pytest.mark.parametrize("tokenizer", PADS)
def test_tokens_weights_and_chunks_are_comfyuis(tokenizer: str) -> None:
    pad = PADS[tokenizer]
    for prompt, chunks in zip(RECORDED["prompts"], RECORDED[tokenizer], strict=True):
        got = [
            [[-1 if t.vector is not None else t.id, t.weight, t.word] for t in c]
            for c in tokenize(prompt, pad, find)
        ]
        full = [chunk + [[pad, 1.0, 0]] * (CHUNK_TOKENS - len(chunk)) for chunk in chunks]
        assert got == full, prompt


@given(st.text(alphabet="ab ,.()", max_size=400))
def test_every_chunk_is_full_and_starts_and_ends(text: str) -> None:
    chunks = tokenize(text, 0, find)
    for chunk in chunks:
        assert len(chunk) == CHUNK_TOKENS
        assert chunk[0].id == START_ID
        assert END_ID in [token.id for token in chunk]


@given(st.text(max_size=60))
def test_any_text_has_tokens_of_the_vocabulary(text: str) -> None:
    assert all(0 <= token < 49408 for token in clip_ids(text))


def test_a_short_group_is_not_torn_at_the_end_of_a_chunk() -> None:
    chunks = tokenize("word " * 73 + "(red castle river mountain:1.2)", 0, find)
    assert [token.weight for token in chunks[0]].count(1.2) == 0
    assert [token.weight for token in chunks[1]].count(1.2) == 4


def test_a_long_group_is_cut_where_the_chunk_is_full() -> None:
    chunks = tokenize("word " * 70 + "(a b c d e f g h i j:1.2)", 0, find)
    assert [[token.weight for token in chunk].count(1.2) for chunk in chunks] == [5, 5]


def test_lone_surrogates_do_not_matter() -> None:
    assert clip_ids("a \ud800cat") == clip_ids("a cat")


def test_the_empty_prompt_is_the_chunk_that_weights_are_measured_from() -> None:
    (chunk,) = tokenize("", 7, find)
    assert chunk == empty_chunk(7) or [t.id for t in chunk] == [t.id for t in empty_chunk(7)]


def test_a_comma_after_a_textual_inversion_is_text() -> None:
    (chunk,) = tokenize("embedding:tinystyle, x", 0, find)
    assert [t.vector is not None for t in chunk[1:4]] == [True] * 3
    assert [t.id for t in chunk[4:6]] == clip_ids(", x")


def test_the_name_of_a_textual_inversion_needs_space_before_it() -> None:
    (chunk,) = tokenize("xembedding:tinystyle", 0, find)
    assert all(token.vector is None for token in chunk)


def test_a_prompt_longer_than_anybody_means_is_refused_with_the_limit() -> None:
    words = CHUNK_TOKENS * MAX_CHUNKS
    with pytest.raises(PromptError, match=f"the prompt is too long: it takes .*the limit is {MAX_CHUNKS}"):
        tokenize("a " * words, 0, find)
