"""Tiles cover a picture, and what is put together from them has no seams."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from comfyserverless.models.tiles.blending import Tiling, blend, cut, run_in_tiles, three_tilings


@st.composite
def tilings(draw: st.DrawFn) -> Tiling:
    overlap = draw(st.integers(0, 5))
    sides = st.integers(overlap + 1, 20)
    return Tiling(draw(sides), draw(sides), overlap)


@given(tilings(), st.integers(1, 60), st.integers(1, 60))
def test_tiles_cover_all_of_a_picture_and_nothing_outside(tiling: Tiling, height: int, width: int) -> None:
    covered = torch.zeros(height, width)
    for box in tiling.boxes((height, width)):
        top, left, rows, columns = box
        assert 0 < rows <= tiling.height
        assert 0 < columns <= tiling.width
        assert top + rows <= height
        assert left + columns <= width
        cut(covered, box).add_(1)
    assert covered.min() >= 1


@settings(deadline=None)
@given(tilings(), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2, 4]))
def test_a_network_that_sees_single_cells_gives_in_tiles_what_it_gives_at_once(
    tiling: Tiling, height: int, width: int, scale: int
) -> None:
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(1))

    def larger(part: Tensor) -> Tensor:
        return functional.interpolate(part, scale_factor=float(scale), mode="nearest")

    torch.testing.assert_close(run_in_tiles(x, larger, [tiling], Fraction(scale)), larger(x))


def test_the_mean_of_three_passes_over_a_network_that_makes_pictures_smaller() -> None:
    x = torch.rand(1, 3, 72, 96, generator=torch.Generator().manual_seed(2))
    tilings = three_tilings(32, 8, is_square_first=True)
    got = run_in_tiles(x, lambda part: functional.avg_pool2d(part, 8), tilings, Fraction(1, 8))
    torch.testing.assert_close(got, functional.avg_pool2d(x, 8))


def test_what_fits_into_one_tile_stays_as_it_is_to_the_last_bit() -> None:
    tile = torch.rand(3, 8, 9)
    assert blend([tile], [(0, 0, 8, 9)], (8, 9), 4, Fraction(1)) is tile


def test_a_tile_counts_less_the_nearer_its_edge_is() -> None:
    boxes = Tiling(4, 8, 4).boxes((4, 12))
    assert boxes == [(0, 0, 4, 8), (0, 4, 4, 8)]
    got = blend([torch.zeros(1, 4, 8), torch.ones(1, 4, 8)], boxes, (4, 12), 4, Fraction(1))
    torch.testing.assert_close(got[0, 1], torch.tensor([0, 0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1]))


def test_missing_tiles_raise() -> None:
    boxes = Tiling(4, 4, 0).boxes((8, 4))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        blend([torch.zeros(1, 4, 4)], boxes, (8, 4), 0, Fraction(1))
    with pytest.raises(ValueError, match="no tiles"):
        blend([], [], (8, 4), 0, Fraction(1))
    with pytest.raises(ValueError, match="no tilings"):
        run_in_tiles(torch.zeros(1, 1, 4, 4), lambda x: x, [], Fraction(1))


def test_the_passes_of_an_autoencoder_have_tiles_of_equal_area() -> None:
    wide, high, square = Tiling(32, 128, 16), Tiling(128, 32, 16), Tiling(64, 64, 16)
    assert three_tilings(64, 16, is_square_first=True) == (square, wide, high)
    assert three_tilings(64, 16, is_square_first=False) == (high, wide, square)
