"""Random scenes stay on their canvas and never show what is held out."""

from __future__ import annotations

import numpy as np
import pytest

from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import PLACES, is_held_out


@pytest.mark.parametrize("size_px", [(64, 64), (128, 128), (192, 128), (128, 192), (96, 128)])
def test_objects_lie_on_the_canvas_and_are_not_held_out(size_px: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    width, height = (side / min(size_px) * 128 for side in size_px)
    for _ in range(300):
        scene = random_scene(rng, size_px)
        for item in scene.items:
            assert item.color != scene.background
            assert not is_held_out(item.shape, item.color, scene.background)
            assert item.radius - 4 <= item.x <= width - item.radius + 4
            assert item.radius - 4 <= item.y <= height - item.radius + 4


def test_every_kind_size_and_place_occurs() -> None:
    rng = np.random.default_rng(4)
    scenes = [random_scene(rng) for _ in range(1500)]
    assert {scene.kind for scene in scenes} == {"empty", "single", "count", "pair"}
    assert {scene.size for scene in scenes} == {"", "small", "medium", "large"}
    assert {scene.place for scene in scenes} == {"", *PLACES}
    assert {len(scene.items) for scene in scenes} == {0, 1, 2, 3}


def test_a_place_is_where_the_word_says() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        scene = random_scene(rng, (192, 128))
        if scene.place:
            right, down = PLACES[scene.place]
            item = scene.items[0]
            assert np.sign(round((item.x - 96) / 8)) == right
            assert np.sign(round((item.y - 64) / 8)) == down


def test_same_seed_same_scenes() -> None:
    first, second = (
        [random_scene(rng) for _ in range(20)] for rng in (np.random.default_rng(1), np.random.default_rng(1))
    )
    assert first == second
