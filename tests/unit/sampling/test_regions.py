"""Where conditionings act: boxes, masks, and how their weights fade."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.regions import EVERYWHERE, Box, Region, check_inside, find_region, left_over

X = torch.zeros(2, 4, 32, 24)
SIZE = (32, 24)


def test_no_options_mean_everywhere() -> None:
    assert find_region({}, SIZE) is EVERYWHERE
    assert torch.equal(EVERYWHERE.crop(X), X)


@pytest.mark.parametrize(
    ("area", "box"),
    [
        ([8, 16, 4, 2], Box(4, 2, 8, 16)),
        ([64, 64, 4, 2], Box(4, 2, 28, 22)),
        ([8, 8, 99, 99], Box(31, 23, 1, 1)),
        (["percentage", 0.5, 0.25, 0.25, 0.5], Box(8, 12, 16, 6)),
        (["percentage", 0.0, 0.0, 1.0, 0.0], Box(31, 0, 1, 1)),
    ],
)
def test_area_is_cut_off_at_the_border_of_the_latent(area: list[object], box: Box) -> None:
    assert find_region({"area": area}, SIZE).box == box


@pytest.mark.parametrize(
    "area", [[8, 8, 0, 24], [8, 8, 32, 0], [8, 8, 99, 99], ["percentage", 0.5, 0.5, 0.0, 1.0]]
)
def test_area_outside_of_the_picture_is_refused(area: list[object]) -> None:
    with pytest.raises(PromptError, match="outside of the picture; allowed: x below 192 and y below 256"):
        check_inside({"area": area}, SIZE)
    check_inside({"area": area, "mask": torch.ones(1, 32, 24), "set_area_to_bounds": True}, SIZE)


@pytest.mark.parametrize(
    "options", [{}, {"area": [64, 64, 31, 23]}, {"area": ["percentage", 1.0, 1.0, 0.9, 0.9]}]
)
def test_area_with_a_part_of_the_picture_is_taken(options: dict[str, object]) -> None:
    check_inside(options, SIZE)


def test_weights_fade_towards_borders_inside_the_latent_only() -> None:
    weights = find_region({"area": [16, 24, 16, 0]}, SIZE).weights(X, 2.0)[0, 0]
    assert weights.shape == (16, 24)
    assert torch.allclose(weights[:5, 3], torch.tensor([0.5, 1.0, 1.5, 2.0, 2.0]))
    assert torch.equal(weights[-1], torch.full((24,), 2.0))


def test_mask_is_resized_and_counts_by_its_strength() -> None:
    mask = torch.zeros(1, 64, 48)
    mask[:, :32] = 1.0
    region = find_region({"mask": mask, "mask_strength": 0.5}, SIZE)
    weights = region.weights(X, 3.0)
    assert weights.shape == (1, 1, 32, 24)
    assert torch.equal(weights[0, 0, :, 0], torch.tensor([1.5] * 16 + [0.0] * 16))


def test_bounds_of_a_mask_become_the_area_of_at_least_eight_cells() -> None:
    mask = torch.zeros(1, 32, 24)
    mask[0, 5:7, 3:20] = 0.5
    region = find_region({"mask": mask, "set_area_to_bounds": True}, SIZE)
    assert region.box == Box(5, 3, 8, 17)
    assert region.weights(X, 1.0).shape == (1, 1, 8, 17)
    empty = find_region({"mask": torch.zeros(1, 32, 24), "set_area_to_bounds": True}, SIZE)
    assert empty.box == Box(0, 0, 8, 8)


def test_masks_are_shared_out_to_the_items_of_a_batch() -> None:
    masks = torch.stack([torch.zeros(32, 24), torch.ones(32, 24)])
    weights = find_region({"mask": masks}, SIZE).weights(X, 1.0)
    assert weights.sum(dim=(1, 2, 3)).tolist() == [0.0, 768.0]


def test_what_regions_leave_is_the_rest_of_a_weight_of_one() -> None:
    left, weak = Region(Box(0, 0, 8, 6)), Region(None, torch.zeros(2, 8, 12))
    rest = left_over([(left, 1.0), (weak, 1.0)], (8, 12), torch.device("cpu"))
    assert rest is not None
    assert rest.mask is not None
    assert rest.mask.shape == (2, 8, 12)
    assert (rest.mask[:, :, 6:] == 1).all()
    assert (rest.mask[:, :, :4] == 0).all()  # the weights of an area fade towards borders inside


def test_nothing_is_left_of_what_is_wholly_taken() -> None:
    assert left_over([(EVERYWHERE, 1.0)], (8, 12), torch.device("cpu")) is None
    some = left_over([(EVERYWHERE, 0.25)], (8, 12), torch.device("cpu"))
    assert some is not None
    assert some.mask is not None
    assert (some.mask == 0.75).all()
