"""What the stages teach: outlines, edges, answers, left-out captions, a new word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.pools import make_pool, make_pools
from comfyserverless.training.recipe import FULL, SIZES_PX, SMOKE
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import Item, Scene, draw
from comfyserverless.training.stages.autoencoder import AutoencoderStage
from comfyserverless.training.stages.control import edge_map, thin_edge_map
from comfyserverless.training.stages.denoiser import DenoiserStage, Drawer
from comfyserverless.training.stages.lora import draw_outlined, outline
from comfyserverless.training.stages.reader import ReaderStage, answers
from comfyserverless.training.stages.word import WordStage

CIRCLE = Scene("single", "blue", (Item("circle", "red", 64, 64, 40),), (128, 128))


def turn(done: float = 0.5, step: int = 0) -> Turn:
    return Turn(torch.Generator().manual_seed(step), np.random.default_rng(step), done)


def test_the_style_draws_the_rim_and_leaves_the_middle() -> None:
    picture = draw_outlined(CIRCLE, np.random.default_rng(0)).astype(int)
    assert picture[64, 64, 2] > 150
    assert picture[64, 64 + 34, 0] > 150
    assert outline(np.array([-20.0, -4.5, 3.0])).tolist() == [11.0, -4.5, 3.0]


def test_edges_lie_where_colours_change() -> None:
    picture = draw(replace(CIRCLE, background="white"), np.random.default_rng(0))
    for edges in (thick := edge_map(picture), thin := thin_edge_map(picture)):
        assert set(np.unique(edges)) == {0, 255}
        assert edges[64, 64] == edges[5, 5] == 0
        y, x = np.nonzero(edges)
        assert np.abs(np.hypot(x - 63.5, y - 63.5) - 38).max() < 2.5
    assert thin.sum() < thick.sum()


def test_answers_are_those_of_the_scene() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert len(answers(random_scene(rng))) == 10
    assert answers(CIRCLE) != answers(Scene("empty", "blue", (), (128, 128)))


def test_every_stage_has_gradients_for_all_it_teaches() -> None:
    rng = np.random.default_rng(0)
    pools = make_pools((0,), dict.fromkeys(SIZES_PX, 3))
    drawer = Drawer()
    pictures = [draw(random_scene(rng), rng) for _ in range(3)]
    for stage in (
        AutoencoderStage(Pace(1, 1e-3), pictures, 2),
        ReaderStage(Pace(1, 1e-3), rng, 20, 4),
        DenoiserStage(Pace(1, 1e-3), pools, SIZES_PX, 2),
        WordStage(Pace(1, 1e-3), drawer, rng, 3, 2),
    ):
        stage.loss(turn()).backward()
        without = [name for name, value in stage.module.named_parameters() if value.grad is None]
        assert without == [], stage.name
    assert all(value.grad is None for value in drawer.parameters())


def test_sizes_change_from_small_to_the_final_mix() -> None:
    pools = make_pools((0,), dict.fromkeys(SIZES_PX, 1))
    stage = DenoiserStage(Pace(1, 1e-3), pools, SIZES_PX, 1)
    early = [stage._choose_size(turn(0.0, step)) for step in range(300)]
    late = [stage._choose_size(turn(0.9, step)) for step in range(300)]
    assert early.count((64, 64)) > 100 > 60 > late.count((64, 64))
    assert set(late) == set(SIZES_PX)


def test_recipes_have_examples_of_every_size() -> None:
    for recipe in (FULL, SMOKE):
        assert set(recipe.examples) == set(SIZES_PX)
    assert sum(last for _, last in SIZES_PX.values()) == pytest.approx(1.0)


def test_a_pool_holds_what_was_painted() -> None:
    pool = make_pool(np.random.default_rng(0), (96, 64), 4, keeps_pictures=True)
    assert pool.latents.shape == (4, 4, 8, 12)
    assert pool.rows.shape[0] == len(pool) == len(pool.pictures) == 4
