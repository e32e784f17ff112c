"""The drawn world: shapes, sizes, what is held out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from comfyserverless.training.scenery.world import COLORS, SHAPES, Item, Scene, draw, is_held_out


def one(shape: str, size_px: tuple[int, int] = (128, 128)) -> Scene:
    width, height = (side / min(size_px) * 128 for side in size_px)
    item = Item(shape, "red", width / 2, height / 2, 40)
    return Scene("single", "blue", (item,), size_px)


@pytest.mark.parametrize("shape", [each for each in SHAPES if each not in ("ring", "moon")])
def test_shape_covers_its_middle_and_leaves_the_corners(shape: str) -> None:
    picture = draw(one(shape), np.random.default_rng(0)).astype(int)
    assert np.abs(picture[64, 64] - COLORS["red"]).max() < 15
    assert np.abs(picture[2, 2] - COLORS["blue"]).max() < 15


def test_ring_has_a_hole() -> None:
    picture = draw(one("ring"), np.random.default_rng(0)).astype(int)
    assert np.abs(picture[64, 64] - COLORS["blue"]).max() < 15
    assert np.abs(picture[64, 64 + 28] - COLORS["red"]).max() < 15


@pytest.mark.parametrize("size_px", [(64, 64), (192, 192), (192, 128), (96, 128)])
def test_objects_keep_their_share_of_every_canvas(size_px: tuple[int, int]) -> None:
    picture = draw(one("circle", size_px), np.random.default_rng(0)).astype(int)
    assert picture.shape == (size_px[1], size_px[0], 3)
    covered = (np.abs(picture - COLORS["red"]).max(-1) < 40).sum() / min(size_px) ** 2
    assert covered == pytest.approx(np.pi * (0.95 * 40 / 128) ** 2, rel=0.05)


def test_one_combination_in_eleven_is_held_out() -> None:
    names = list(COLORS)
    every = [is_held_out(*each) for each in itertools.product(SHAPES, names, names) if each[1] != each[2]]
    assert sum(every) / len(every) == pytest.approx(1 / 11, abs=0.01)
    for shape, color in itertools.product(SHAPES, names):
        assert sum(is_held_out(shape, color, other) for other in names) == 1


def test_gradient_and_stripes_change_the_picture() -> None:
    def spread(scene: Scene) -> float:
        return float(draw(scene, np.random.default_rng(0))[:, 2].std(0).max())

    plain = Scene("empty", "blue", (), (128, 128))
    assert spread(plain) == 0
    assert spread(Scene("empty", "blue", (), (128, 128), is_gradient=True)) > 20
    striped = Scene("single", "blue", (Item("square", "red", 64, 64, 40, is_striped=True),), (128, 128))
    column = draw(striped, np.random.default_rng(0))[40:90, 64].astype(int)
    assert np.ptp(column, axis=0).max() > 150
