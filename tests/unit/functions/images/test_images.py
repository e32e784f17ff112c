"""Images: what each function does to pixels, beside the recorded pictures of the parity cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import scipy.ndimage
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.images.filters import MORPHOLOGY
from comfyserverless.functions.images.porter_duff import OPERATORS
from comfyserverless.functions.registry import FUNCTIONS


def call(name: str, **inputs: Any) -> Mapping[str, Any]:
    return FUNCTIONS[name].execute({}, **inputs)


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def full(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value)


def test_batch_gives_the_second_the_size_of_the_first_and_opaque_alpha() -> None:
    first, second = images(2, 4, 6, 4), images(1, 8, 12, 3, seed=1)
    batch = call("image.batch", first=first, second=second)["images"]
    assert batch.shape == (3, 4, 6, 4)
    assert torch.equal(batch[:2], first)
    assert torch.equal(batch[2, ..., 3], torch.ones(4, 6))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("normal", 0.6), ("multiply", 0.12), ("screen", 0.68), ("overlay", 0.24), ("difference", 0.0)],
)
def test_blend_modes_follow_their_formulas(mode: str, expected: float) -> None:
    blended = call(
        "image.blend", first=full(0.2, 1, 2, 2, 3), second=full(0.6, 1, 2, 2, 3), factor=1.0, mode=mode
    )
    assert torch.allclose(blended["images"], torch.tensor(expected))


def test_soft_light_with_gray_changes_nothing() -> None:
    first = images(1, 4, 4, 3)
    blended = call("image.blend", first=first, second=full(0.5, 1, 4, 4, 3), factor=1.0, mode="soft_light")
    assert torch.allclose(blended["images"], first, atol=1e-6)


def test_blend_by_nothing_is_the_first_image() -> None:
    first = images(1, 4, 4, 3)
    blended = call("image.blend", first=first, second=images(1, 8, 4, 4, seed=1), factor=0.0, mode="screen")
    assert torch.equal(blended["images"], first)


def test_batches_that_do_not_fit_are_not_blended() -> None:
    with pytest.raises(PromptError, match="batch of 3 images"):
        call("image.blend", first=images(2, 4, 4, 3), second=images(3, 4, 4, 3), factor=0.5, mode="normal")


def test_composite_reaches_as_far_as_the_destination() -> None:
    destination, source = full(0.0, 2, 4, 4, 3), full(1.0, 1, 3, 3, 3)
    put = call(
        "image.composite", destination=destination, source=source, mask=None, x=2, y=3, resize_source=False
    )
    assert put["images"][..., 0].sum(dim=(1, 2)).tolist() == [2.0, 2.0]
    assert torch.equal(put["images"][:, 3, 2:], torch.ones(2, 2, 3))
    beyond = {"mask": None, "x": 9, "y": 0, "resize_source": False}
    assert torch.equal(
        call("image.composite", destination=destination, source=source, **beyond)["images"], destination
    )


def test_composite_shows_the_source_by_the_mask() -> None:
    mask = torch.tensor([[[0.0, 0.25], [0.5, 1.0]]])
    put = call(
        "image.composite",
        destination=full(0.0, 1, 2, 2, 3),
        source=full(1.0, 1, 7, 5, 3),
        mask=mask,
        x=0,
        y=0,
        resize_source=True,
    )
    assert torch.equal(put["images"][..., 0], mask)


def test_alpha_comes_back_after_it_was_joined() -> None:
    rgb, mask = images(2, 4, 5, 3), images(1, 4, 5, seed=1)
    joined = call("image.join_alpha", images=rgb, alpha=mask)["images"]
    parts = call("image.split_alpha", images=joined)
    assert torch.equal(parts["images"], rgb)
    assert torch.allclose(parts["mask"], mask.expand(2, -1, -1), atol=1e-6)
    assert torch.equal(call("image.split_alpha", images=rgb)["mask"], torch.zeros(2, 4, 5))


OPAQUE = {"source_alpha": full(0.0, 1, 4, 4), "destination_alpha": full(0.0, 1, 4, 4)}


@pytest.mark.parametrize("mode", sorted(set(OPERATORS) - {"LIGHTEN", "OVERLAY"}))
def test_porter_duff_of_nothing_on_an_image(mode: str) -> None:
    """A fully transparent source: what is kept of the destination is what the operator keeps outside it."""
    kept = {"ADD", "DARKEN", "DST", "DST_OUT", "DST_OVER", "SCREEN", "SRC_ATOP", "SRC_OVER", "XOR"}
    destination = images(1, 4, 4, 3, seed=1)
    made = call(
        "image.porter_duff",
        source=images(1, 4, 4, 3),
        destination=destination,
        mode=mode,
        **{**OPAQUE, "source_alpha": full(1.0, 1, 4, 4)},
    )
    assert torch.allclose(made["images"], destination if mode in kept else torch.zeros(1), atol=1e-6)
    assert torch.equal(made["mask"], full(0.0 if mode in kept else 1.0, 1, 4, 4))


@pytest.mark.parametrize(
    ("mode", "shown"),
    [("SRC_OVER", 0), ("DST_OVER", 1), ("SRC_IN", 0), ("DST_IN", 1), ("SRC_ATOP", 0), ("DST_ATOP", 1)],
)
def test_of_two_opaque_images_the_operator_shows_one(mode: str, shown: int) -> None:
    layers = images(1, 4, 4, 3), images(1, 4, 4, 3, seed=1)
    made = call("image.porter_duff", source=layers[0], destination=layers[1], mode=mode, **OPAQUE)
    assert torch.allclose(made["images"], layers[shown], atol=1e-6)


@pytest.mark.parametrize(
    ("direction", "shape", "place"),
    [
        ("right", (1, 4, 8, 3), (0, 0)),
        ("left", (1, 4, 8, 3), (0, 4)),
        ("down", (1, 8, 4, 3), (0, 0)),
        ("up", (1, 8, 4, 3), (4, 0)),
    ],
)
def test_stitch_puts_the_second_on_a_side_of_the_first(
    direction: str, shape: tuple[int, ...], place: tuple[int, int]
) -> None:
    first = images(1, 4, 4, 3)
    stitched = stitch(first, images(1, 8, 8, 3, seed=1), direction=direction)
    y, x = place
    assert stitched.shape == shape
    assert torch.equal(stitched[:, y : y + 4, x : x + 4], first)


def stitch(first: Tensor, second: Tensor, **inputs: Any) -> Tensor:
    given = {"direction": "right", "matches_size": True, "spacing": 0, "color": "red", **inputs}
    made = call("image.stitch", first=first, second=second, **given)["images"]
    assert isinstance(made, Tensor)
    return made


def test_stitch_centres_the_smaller_one_and_leaves_room_of_an_even_width() -> None:
    stitched = stitch(full(1.0, 1, 2, 2, 3), full(1.0, 2, 4, 2, 3), matches_size=False, spacing=3)
    assert stitched.shape == (2, 4, 8, 3)
    assert stitched[0, :, 0, 0].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert torch.equal(stitched[:, :, 2:6], torch.tensor([1.0, 0.0, 0.0]).expand(2, 4, 4, 3))


def test_blur_keeps_what_is_flat_and_is_the_mirrored_gaussian() -> None:
    flat = call("image.blur", images=full(0.3, 1, 8, 8, 3), radius=2, sigma=1.0)["images"]
    assert torch.allclose(flat, torch.tensor(0.3))
    x = images(1, 9, 7, 4)
    places = torch.linspace(-1, 1, 5)
    weights = torch.exp(-(places[:, None] ** 2 + places**2) / (2 * 0.7**2))
    expected = scipy.ndimage.convolve(x[0, ..., 3].numpy(), (weights / weights.sum()).numpy(), mode="mirror")
    blurred = call("image.blur", images=x, radius=2, sigma=0.7)["images"]
    assert torch.allclose(blurred[0, ..., 3], torch.from_numpy(expected), atol=1e-6)


def test_radius_over_the_whole_image_is_a_clear_error() -> None:
    with pytest.raises(PromptError, match="radius of 5 pixels"):
        call("image.blur", images=images(1, 5, 9, 3), radius=5, sigma=1.0)


def test_sharpen_adds_what_a_blur_takes_away() -> None:
    x = images(1, 9, 9, 3) * 0.2 + 0.4
    blurred = call("image.blur", images=x, radius=1, sigma=1.0)["images"]
    sharp = call("image.sharpen", images=x, radius=1, sigma=1.0, alpha=0.1)["images"]
    assert torch.allclose(sharp, x + (x - blurred), atol=1e-5)


def test_noise_comes_back_with_its_seed() -> None:
    x = full(0.5, 1, 16, 16, 3)
    one, again, other = (call("image.noise", images=x, seed=s, strength=0.1)["images"] for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert 0.05 < float((one - x).std()) < 0.15


@pytest.mark.parametrize("dither", ["none", "floyd-steinberg", "bayer-2", "bayer-4", "bayer-8", "bayer-16"])
def test_quantised_image_has_few_colours(dither: str) -> None:
    made = call("image.quantize", images=images(2, 16, 16, 4), colors=5, dither=dither)["images"]
    assert made.shape == (2, 16, 16, 3)
    assert all(len(item.reshape(-1, 3).unique(dim=0)) <= 5 for item in made)


@pytest.mark.parametrize("size", [3, 4, 7])
@pytest.mark.parametrize(("operation", "reference"), [("dilate", "grey_dilation"), ("erode", "grey_erosion")])
def test_morphology_is_that_of_the_books(operation: str, reference: str, size: int) -> None:
    x = images(1, 9, 8, 3)
    made = call("image.morphology", images=x, operation=operation, size=size)["images"]
    find = getattr(scipy.ndimage, "maximum_filter" if reference == "grey_dilation" else "minimum_filter")
    edge = -9.0 if reference == "grey_dilation" else 9.0
    expected = find(x[0, ..., 1].numpy(), size=size, mode="constant", cval=edge)
    assert torch.equal(made[0, ..., 1], torch.from_numpy(expected))


def test_opening_and_closing_are_ordered_around_the_image() -> None:
    x = images(1, 9, 9, 3).movedim(-1, 1)
    assert bool((MORPHOLOGY["open"](x, 3) <= x).all())
    assert bool((MORPHOLOGY["close"](x, 3) >= x).all())
    assert torch.equal(MORPHOLOGY["top_hat"](x, 3), x - MORPHOLOGY["open"](x, 3))
    assert torch.equal(MORPHOLOGY["bottom_hat"](x, 3), MORPHOLOGY["close"](x, 3) - x)


def test_flips_and_turns_come_back() -> None:
    x = images(2, 3, 5, 3)
    for axis in ("x", "y"):
        assert torch.equal(
            call("image.flip", images=call("image.flip", images=x, axis=axis)["images"], axis=axis)["images"], x
        )
    assert torch.equal(call("image.flip", images=x, axis="x")["images"][:, 0], x[:, -1])
    right = call("image.rotate", images=x, turns=1)["images"]
    assert torch.equal(right[:, :, -1], x[:, 0])  # clockwise: the top row becomes the right column
    assert torch.equal(call("image.rotate", images=right, turns=3)["images"], x)


def test_batch_is_repeated_and_sliced() -> None:
    x = images(2, 3, 3, 3)
    repeated = call("image.repeat", images=x, amount=2)["images"]
    assert torch.equal(repeated, torch.cat([x, x]))
    assert torch.equal(call("image.slice", images=repeated, start=1, length=2)["images"], repeated[1:3])
    assert torch.equal(call("image.slice", images=x, start=9, length=4)["images"], x[1:])


def test_frame_keeps_the_ratio_and_fills_the_rest() -> None:
    framed = call("image.frame", images=full(0.5, 1, 4, 8, 3), width=8, height=8, color="white", method="area")
    assert framed["images"][0, :, 0, 0].tolist() == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_colour_is_found_after_rounding_to_8_bits() -> None:
    x = torch.tensor([[[[1.0, 0.0, 0.502], [1.0, 0.01, 0.5]]]])
    assert call("image.color_mask", images=x, color=0xFF0080)["mask"].tolist() == [[[1.0, 0.0]]]


def test_yuv_comes_back_as_rgb() -> None:
    x = images(1, 4, 4, 3)
    parts = call("image.to_yuv", images=x)
    assert torch.allclose(call("image.from_yuv", **parts)["images"], x, atol=2e-3)
    assert torch.allclose(call("image.to_yuv", images=full(0.4, 1, 1, 1, 3))["u"], torch.tensor(0.5))


def test_parts_of_different_sizes_are_no_picture() -> None:
    y, other = images(2, 8, 4, 3), images(1, 8, 5, 3)
    with pytest.raises(PromptError, match="are 2 of 4x8, 1 of 5x8, 2 of 4x8: images of one size"):
        call("image.from_yuv", y=y, u=other, v=y)
    assert call("image.from_yuv", y=y, u=y[:1], v=y)["images"].shape == (2, 8, 4, 3)
