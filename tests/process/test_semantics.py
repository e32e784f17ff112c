"""Look at what the demo model draws through the real server: is it what was asked for?

A judge that sees pixels only reads the pictures, so a fault anywhere on the way (tokens, guidance, seeds,
masks, LoRA keys, hints) shows as a wrong picture.
"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from comfyserverless.demo.places import DEMO_CONTROLNET, DEMO_LORA
from comfyserverless.training.evaluation.judge import Reading, Thing, read_picture
from comfyserverless.training.evaluation.regions import Mask, grown
from comfyserverless.training.evaluation.sheet import in_words
from comfyserverless.training.scenery.world import COLORS, Floats, Item, Picture, Scene
from comfyserverless.training.scenery.world import draw as draw_scene
from tests.support.drawing import (
    CHECKPOINT_CLIP,
    CHECKPOINT_MODEL,
    CHECKPOINT_VAE,
    NEGATIVE,
    POSITIVE,
    Graph,
    Sheet,
    draw,
    node,
    text_graph,
    upload,
)
from tests.support.server import RunningServer

WIDE = Sheet((192, 128))


def scene_picture(item: Item, background: str, size_px: tuple[int, int] = (128, 128)) -> Picture:
    """Draw one object."""
    return draw_scene(Scene("single", background, (item,), size_px), np.random.default_rng(0))


def only_thing(reading: Reading) -> Thing:
    """Return the one object of a picture."""
    assert len(reading.things) == 1, in_words(reading)
    return reading.things[0]


def said(*pictures: Picture) -> list[str]:
    """Read pictures into words."""
    return [in_words(read_picture(picture)) for picture in pictures]


@pytest.mark.parametrize(
    ("text", "picture_in_words"),
    [
        ("a large red circle on a blue background", "red circle on blue"),
        ("a large white heart on a green background", "white heart on green"),
        ("a medium yellow star on a black background", "yellow star on black"),
        ("on a pink background, a large purple square", "purple square on pink"),
    ],
)
async def test_picture_shows_what_the_prompt_says(
    text: str, picture_in_words: str, server: RunningServer
) -> None:
    assert said(*await draw(server.url, text_graph(text, seed=3))) == [picture_in_words]


async def test_object_is_where_the_prompt_says(server: RunningServer) -> None:
    pictures = await draw(
        server.url,
        text_graph("a red circle at the top left on a white background"),
        text_graph("a red circle at the bottom right on a white background"),
    )
    upper, lower = (only_thing(read_picture(picture)) for picture in pictures)
    assert max(upper.x, upper.y) < 0.45
    assert min(lower.x, lower.y) > 0.55


async def test_pictures_of_a_batch_differ_and_each_is_right(server: RunningServer) -> None:
    pictures = await draw(
        server.url, text_graph("a large red circle on a blue background", sheet=Sheet(count=4))
    )
    assert said(*pictures) == ["red circle on blue"] * 4
    places = {(round(thing.x, 3), round(thing.y, 3)) for thing in map(only_thing, map(read_picture, pictures))}
    assert len(places) == 4


async def test_each_of_two_objects_has_its_own_color_and_side(server: RunningServer) -> None:
    beside = "a red circle on the left and a yellow square on the right on a blue background"
    above = "a white heart above a green triangle on a black background"
    pictures = await draw(server.url, text_graph(beside, 1), text_graph(above, 1))
    left, right = sorted(read_picture(pictures[0]).things, key=lambda thing: thing.x)
    assert [(left.color, left.shape), (right.color, right.shape)] == [("red", "circle"), ("yellow", "square")]
    upper, lower = sorted(read_picture(pictures[1]).things, key=lambda thing: thing.y)
    assert [(upper.color, upper.shape), (lower.color, lower.shape)] == [
        ("white", "heart"),
        ("green", "triangle"),
    ]


def from_picture(name: str, denoise: float) -> dict[str, Graph]:
    """Return the nodes that begin with a picture instead of an empty canvas."""
    return {
        "load": node("LoadImage", image=name),
        "encode": node("VAEEncode", pixels=["load", 0], vae=CHECKPOINT_VAE),
        "sampler": node("KSampler", latent_image=["encode", 0], denoise=denoise),
    }


async def test_low_denoise_keeps_the_layout_and_full_denoise_does_not(server: RunningServer) -> None:
    aside = scene_picture(Item("circle", "red", x=90, y=42, radius=28), "blue")
    name = await upload(server.url, "aside.png", Image.fromarray(aside))
    text = "a red circle at the bottom left on a blue background"
    kept, redrawn = (
        only_thing(read_picture(picture))
        for picture in await draw(
            server.url, *(text_graph(text, nodes=from_picture(name, denoise)) for denoise in (0.3, 1.0))
        )
    )
    assert (kept.x * 128, kept.y * 128) == pytest.approx((90, 42), abs=6)
    assert redrawn.x < 0.5 < redrawn.y


async def test_inpainting_adds_what_is_asked_and_leaves_the_rest(server: RunningServer) -> None:
    before = scene_picture(Item("circle", "red", x=64, y=64, radius=30), "blue", (192, 128))
    picture = Image.fromarray(before)
    alpha = np.full(before.shape[:2], 255, np.uint8)
    alpha[:, 108:] = 0
    picture.putalpha(Image.fromarray(alpha))
    nodes = from_picture(await upload(server.url, "half.png", picture), 1.0)
    mask = node("SetLatentNoiseMask", samples=["encode", 0], mask=["load", 1])
    nodes |= {"mask": mask, "sampler": node("KSampler", latent_image=["mask", 0])}
    text = "a red circle on the left and a yellow star on the right on a blue background"
    (painted,) = await draw(server.url, text_graph(text, 7, nodes))
    star = next(thing for thing in read_picture(painted).things if thing.color == "yellow")
    assert star.shape == "star"
    assert star.x > 0.6
    left = slice(0, 88)
    assert np.abs(painted[:, left].astype(int) - before[:, left]).mean() < 6


def edges_of(picture: Picture) -> Mask:
    """Mark the pixels where colours change to the next one."""
    wide: Floats = picture.astype(np.float32)
    steps = np.zeros(picture.shape[:2], np.float32)
    steps[:, 1:] = np.abs(np.diff(wide, axis=1)).max(-1)
    steps[1:] = np.maximum(steps[1:], np.abs(np.diff(wide, axis=0)).max(-1))
    return steps > 24


async def test_controlnet_draws_along_the_edges_that_it_is_given(server: RunningServer) -> None:
    sketch = scene_picture(Item("star", "white", x=48, y=80, radius=40), "black")
    lines = edges_of(sketch)
    name = await upload(server.url, "lines.png", Image.fromarray((lines * 255).astype(np.uint8)).convert("RGB"))
    nodes = {
        "load": node("LoadImage", image=name),
        "net": node("ControlNetLoader", control_net_name=DEMO_CONTROLNET),
        "control": node(
            "ControlNetApplyAdvanced", positive=POSITIVE, negative=NEGATIVE, control_net=["net", 0],
            image=["load", 0], strength=1, start_percent=0, end_percent=1,
        ),
        "sampler": node("KSampler", positive=["control", 0], negative=["control", 1]),
    }  # fmt: skip
    (picture,) = await draw(server.url, text_graph("an orange star on a purple background", 2, nodes))
    thing = only_thing(read_picture(picture))
    assert (thing.color, thing.shape) == ("orange", "star")
    assert (thing.x * 128, thing.y * 128) == pytest.approx((48, 80), abs=5)
    drawn = edges_of(picture)
    both = (grown(drawn, 2) & lines).sum() + (grown(lines, 2) & drawn).sum()
    assert both / (drawn.sum() + lines.sum()) > 0.85


async def test_lora_draws_hollow_objects_and_at_strength_0_changes_nothing(server: RunningServer) -> None:
    text = "a large red heart on a yellow background"

    def with_lora(strength: float) -> Graph:
        lora = node(
            "LoraLoader", lora_name=DEMO_LORA, model=CHECKPOINT_MODEL, clip=CHECKPOINT_CLIP,
            strength_model=strength, strength_clip=strength,
        )  # fmt: skip
        styled = {
            "lora": lora,
            "sampler": node("KSampler", model=["lora", 0]),
            "positive": node("CLIPTextEncode", clip=["lora", 1]),
        }
        return text_graph(text, 5, styled)

    plain, off, on = await draw(server.url, text_graph(text, 5), with_lora(0), with_lora(1))
    assert said(plain, on) == ["red heart on yellow", "hollow red heart on yellow"]
    assert (plain == off).all()


async def test_learnt_word_draws_what_it_stands_for(server: RunningServer) -> None:
    learnt, unknown = await draw(
        server.url, text_graph("embedding:night_star", 4), text_graph("embedding:no_such_word", 4)
    )
    assert said(learnt) == ["yellow star on black"]
    assert only_thing(read_picture(learnt)).radius > 40
    assert (learnt != unknown).any()


async def test_wide_canvas_holds_one_picture(server: RunningServer) -> None:
    (picture,) = await draw(
        server.url, text_graph("a large green triangle on a white background", 6, sheet=WIDE)
    )
    assert picture.shape == (128, 192, 3)
    assert said(picture) == ["green triangle on white"]


async def test_negative_prompt_pushes_away(server: RunningServer) -> None:
    """With the positive text empty, guidance leads away from the negative one only."""
    text = "a large red circle on a blue background"
    away, towards = text_graph("", 9, {"negative": node("CLIPTextEncode", text=text)}), text_graph(text, 9)
    red, blue = (np.array(COLORS[name]) for name in ("red", "blue"))

    def likeness(picture: Picture) -> float:
        nearest = np.minimum(np.abs(picture - red).sum(-1), np.abs(picture - blue).sum(-1))
        return float((nearest < 90).mean())

    far, near = await draw(server.url, away, towards)
    assert likeness(near) > 0.9
    assert likeness(far) < 0.5
