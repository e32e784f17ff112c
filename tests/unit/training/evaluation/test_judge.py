"""Show the judge drawn scenes, whose content is known, and things that are none of ours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comfyserverless.training.evaluation.judge import Reading, read_picture
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import COLORS, SHAPES, Floats, Item, Picture, Scene, draw
from tests.support.imperfect import Flaws, draw_with

SIZES_PX = ((64, 64), (96, 96), (128, 128), (160, 160), (192, 192), (192, 128), (128, 192), (128, 96))
PLAIN = Scene("single", "blue", (), (128, 128))


def is_read_right(scene: Scene, reading: Reading) -> bool:
    """Tell whether background, number, colours and shapes of a scene were read."""
    drawn = sorted((item.color, item.shape) for item in scene.items)
    read = sorted((thing.color, thing.shape) for thing in reading.things)
    return reading.background == scene.background and read == drawn


def share_read_right(flaws: Flaws, count: int, sizes_px: tuple[tuple[int, int], ...]) -> float:
    """Return the share of random scenes that are read without fault."""
    rng = np.random.default_rng(5)
    right = 0
    for at in range(count):
        scene = random_scene(rng, sizes_px[at % len(sizes_px)])
        right += is_read_right(scene, read_picture(draw_with(flaws, scene, rng)))
    return right / count


def painted(distance: Floats) -> Picture:
    """Paint red on blue where a signed distance [h, w] in pixels is negative."""
    cover = np.clip(0.5 - distance, 0, 1)[..., None]
    picture: Picture = (np.array(COLORS["blue"]) * (1 - cover) + np.array(COLORS["red"]) * cover).astype(
        np.uint8
    )
    return picture


def plane(turn_degrees: float = 0.0) -> tuple[Floats, Floats]:
    """Return x and y [128, 128] around the middle, turned."""
    y, x = np.mgrid[:128, :128].astype(np.float32) - np.float32(63.5)
    turn = np.deg2rad(np.float32(turn_degrees))
    return x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)


def shape_read(picture: Picture) -> str:
    """Return the shape of the only object."""
    (thing,) = read_picture(picture).things
    return thing.shape


@pytest.mark.parametrize("size_px", SIZES_PX, ids=str)
def test_drawn_scenes_are_read_without_fault(size_px: tuple[int, int]) -> None:
    assert share_read_right(Flaws(), 8, (size_px,)) == 1


@pytest.mark.parametrize(
    ("flaws", "least"),
    [
        (Flaws(noise=16), 0.97),
        (Flaws(blur_px=1), 0.97),
        (Flaws(0.03, 8, 0.7), 0.97),
        (Flaws(0.05, 8, 0.7), 0.9),
    ],
    ids=str,
)
def test_flawed_pictures_are_still_read(flaws: Flaws, least: float) -> None:
    assert share_read_right(flaws, 32, SIZES_PX) >= least


@pytest.mark.parametrize("shape", SHAPES)
def test_place_and_size_of_an_object_are_measured(shape: str) -> None:
    item = Item(shape, "red", x=45, y=80, radius=28)
    (thing,) = read_picture(draw(Scene("single", "blue", (item,), (192, 192)), np.random.default_rng(0))).things
    assert (thing.x * 128, thing.y * 128) == pytest.approx((45, 80), abs=1.5)
    assert thing.radius == pytest.approx(28, rel=0.05)
    assert not thing.is_hollow


@pytest.mark.parametrize("shape", SHAPES)
def test_large_outlines_are_hollow_objects(shape: str) -> None:
    item = Item(shape, "red", x=64, y=64, radius=50)
    outlined = draw(
        Scene("single", "blue", (item,), (128, 128)),
        np.random.default_rng(0),
        lambda distance: np.abs(distance + 4.5) - 4.5,
    )
    (thing,) = read_picture(outlined).things
    assert (thing.shape, thing.is_hollow) == (shape, True)


def test_stray_pixels_and_specks_change_nothing() -> None:
    item = Item("star", "yellow", x=64, y=64, radius=30)
    picture = draw(Scene("single", "black", (item,), (128, 128)), np.random.default_rng(0))
    before = read_picture(picture)
    marred = picture.copy()
    marred[3, 3] = marred[60, 31] = marred[120, 5:9] = (255, 255, 255)
    after = read_picture(marred)
    assert [(thing.color, thing.shape) for thing in after.things] == [("yellow", "star")]
    assert (after.things[0].x, after.things[0].radius) == pytest.approx(
        (before.things[0].x, before.things[0].radius), rel=0.01
    )


def test_background_that_runs_from_light_to_dark_has_the_name_of_its_top() -> None:
    item = Item("heart", "green", x=64, y=64, radius=40)
    scene = Scene("single", "pink", (item,), (128, 128), is_gradient=True)
    reading = read_picture(draw(scene, np.random.default_rng(0)))
    assert reading.background == "pink"
    assert [(thing.color, thing.shape) for thing in reading.things] == [("green", "heart")]


def test_empty_picture_has_no_objects() -> None:
    for size_px in SIZES_PX:
        scene = Scene("empty", "gray", (), size_px)
        assert read_picture(draw(scene, np.random.default_rng(0))) == Reading("gray", ())


def test_two_colors_that_touch_are_two_objects() -> None:
    items = (Item("square", "red", 40, 64, 26), Item("square", "yellow", 82, 64, 26))
    reading = read_picture(draw(Scene("pair", "white", items, (128, 128)), np.random.default_rng(0)))
    assert sorted((thing.color, thing.shape) for thing in reading.things) == [
        ("red", "square"),
        ("yellow", "square"),
    ]


X, Y = plane()
FOREIGN: dict[str, Callable[[], Floats]] = {
    "pentagon": lambda: np.max([X * np.sin(a) - Y * np.cos(a) for a in np.arange(5) * 2 * np.pi / 5], 0) - 29,
    "ellipse": lambda: np.hypot(X / 1.3, Y * 1.3) - 34,
    "rectangle": lambda: np.maximum(np.abs(X) - 36, np.abs(Y) - 22),
    "half disc": lambda: np.maximum(np.hypot(X, Y) - 34, Y),
    "bar": lambda: np.maximum(np.abs(X) - 40, np.abs(Y) - 6),
    "corner": lambda: np.minimum(
        np.maximum(np.abs(X + 20) - 8, np.abs(Y) - 34), np.maximum(np.abs(X) - 28, np.abs(Y - 26) - 8)
    ),
    "star upside down": lambda: SHAPES["star"](X / 34, -Y / 34) * 34,
    "heart upside down": lambda: SHAPES["heart"](X / 34, -Y / 34) * 34,
    "triangle upside down": lambda: SHAPES["triangle"](X / 34, -Y / 34) * 34,
    "moon that looks the other way": lambda: SHAPES["moon"](-X / 34, Y / 34) * 34,
    "cross turned by half": lambda: SHAPES["cross"](*(axis / 34 for axis in plane(45))) * 34,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_none_of_our_shapes_has_no_name(name: str) -> None:
    assert shape_read(painted(FOREIGN[name]())) == ""


def test_slightly_turned_shapes_keep_their_names() -> None:
    for shape in SHAPES:
        assert shape_read(painted(SHAPES[shape](*(axis / 34 for axis in plane(4))) * 34)) == shape


def test_brown_is_none_of_our_colors() -> None:
    picture = np.full((64, 64, 3), COLORS["white"], np.uint8)
    picture[20:44, 20:44] = (101, 67, 33)
    (thing,) = read_picture(picture).things
    assert (thing.color, thing.shape) == ("", "square")
