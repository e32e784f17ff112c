"""Tiles of any number of dimensions."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch.nn.functional import interpolate

from comfyserverless.host.helpers import tiling
from comfyserverless.models.tiles.blending import Tiling, run_in_tiles


class Bar:
    steps = 0

    def update(self, count: int) -> None:
        self.steps += count


def test_what_does_not_look_around_comes_out_as_without_tiles() -> None:
    x = torch.rand(2, 3, 20, 30, generator=torch.manual_seed(0))
    bar = Bar()
    scaled = tiling.tiled_scale(x, lambda a: interpolate(a, scale_factor=2), 16, 16, 4, 2, pbar=bar)
    assert torch.allclose(scaled, interpolate(x, scale_factor=2), atol=1e-6)
    assert bar.steps == 2 * tiling.get_tiled_scale_steps(30, 20, 16, 16, 4) == 12


def test_tiles_are_blended_as_the_server_blends_its_own() -> None:
    x = torch.rand(1, 3, 20, 30, generator=torch.manual_seed(0))

    def network(tile: torch.Tensor) -> torch.Tensor:
        return interpolate(tile * tile.mean(), scale_factor=4)

    ours = run_in_tiles(x, network, (Tiling(16, 12, 4),), Fraction(4))
    assert torch.allclose(tiling.tiled_scale(x, network, 12, 16, 4, 4), ours, atol=1e-5)


def test_later_arguments_may_come_by_position() -> None:
    x = torch.rand(1, 3, 8, 8)
    bar = Bar()
    scaled = tiling.tiled_scale(x, lambda a: a[:, :1], 8, 8, 2, 1, 1, "cpu", bar)
    assert scaled.shape == (1, 1, 8, 8)
    assert bar.steps == 1


@pytest.mark.parametrize(("shape", "tile"), [((1, 2, 50), (16,)), ((1, 2, 5, 20, 12), (4, 8, 8))])
def test_other_numbers_of_dimensions(shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.manual_seed(0))
    scaled = tiling.tiled_scale_multidim(x, lambda a: a * 2, tile, 2, 1, out_channels=2)
    assert torch.allclose(scaled, x * 2, atol=1e-6)


def test_lengths_may_be_functions_and_divided() -> None:
    x = torch.rand(1, 2, 32, 32)
    small = tiling.tiled_scale_multidim(
        x, lambda a: a[..., ::8, ::8], (16, 16), 8, 8, out_channels=2, downscale=True
    )
    assert torch.allclose(small, x[..., ::8, ::8])
    frames = torch.rand(1, 2, 4, 8)
    grown = tiling.tiled_scale_multidim(
        frames,
        lambda a: torch.cat([a[:, :, :1], a.repeat_interleave(2, 2)[:, :, 2:]], 2),
        (8, 8),
        0,
        (lambda n: n * 2 - 1, 1),
        out_channels=2,
    )
    assert grown.shape == (1, 2, 7, 8)
