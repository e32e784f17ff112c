"""Captions say what is there, in words that the model has rows for."""

from __future__ import annotations

import numpy as np

from comfyserverless.models.text.bpe import clip_ids
from comfyserverless.training.scenery.captions import UNKNOWN, caption
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.vocabulary import TOKENS, end_row, row_count, rows, start_row, token_ids
from comfyserverless.training.scenery.world import Item, Scene


def test_every_word_of_captions_has_a_row() -> None:
    rng = np.random.default_rng(0)
    for _ in range(800):
        text = caption(random_scene(rng), rng)
        assert (rows(text.replace(UNKNOWN, "")) != 0).all(), text


def test_rows_are_the_tokens_that_the_product_reads() -> None:
    rng = np.random.default_rng(1)
    row_of = {token: row + 1 for row, token in enumerate(token_ids())}
    for _ in range(200):
        text = caption(random_scene(rng), rng).replace(UNKNOWN, "").strip()
        expected = [row_of[token] for token in clip_ids(text)]
        assert rows(text)[1 : 1 + len(expected)].tolist() == expected


def test_rows_have_marks_and_unknown_words_share_row_zero() -> None:
    found = rows(f"red {UNKNOWN} astronaut")
    assert found.shape == (TOKENS,)
    assert found[0] == start_row()
    assert found[-1] == end_row()
    assert found[2] == 0
    assert 0 in found[3:6]
    assert rows("red " * 200).max() < row_count()


def test_a_caption_names_what_is_seen() -> None:
    rng = np.random.default_rng(2)
    items = (Item("star", "red", 33, 64, 25), Item("moon", "cyan", 95, 64, 25))
    scene = Scene("pair", "black", items, (128, 128))
    texts = [caption(scene, rng) for _ in range(200)]
    assert all("star" in text and "black" in text for text in texts)
    assert all("moon" in text or "crescent" in text for text in texts)
    assert sum("red" in text.split() for text in texts) > 180
    for text in texts:
        if " to the left of " in text:
            assert text.index("star") < text.index(" to the left of ")


def test_an_empty_scene_is_said_to_be_one() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        assert "green" in caption(Scene("empty", "green", (), (128, 128)), rng)
