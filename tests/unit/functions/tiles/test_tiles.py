"""Functions over tiles: plans, their parts, and what becomes of them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, UpscaleRef, VaeRef
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.functions.tiles.planning import PART_PX
from comfyserverless.models.autoencoder import KlAutoencoder
from comfyserverless.models.tiles.blending import run_in_tiles, three_tilings

VAE = VaeRef(FileRef("/models/vae"))
UPSCALER = UpscaleRef(FileRef("/models/upscaler"))
CELL_PX = 8


class Half:
    """Both halves of an autoencoder that works on single cells; full: pixels at once that its memory holds."""

    device = torch.device("cpu")
    base = None

    def __init__(self) -> None:
        self.full_px = 1 << 30
        self.seen: list[tuple[int, ...]] = []

    @contextmanager
    def running(self) -> Iterator[Any]:
        yield self

    def decode(self, samples: Tensor, return_dict: bool) -> tuple[Tensor]:
        self._see(samples.shape[2] * samples.shape[3] * CELL_PX**2, samples)
        return (functional.interpolate(samples[:, :3] * 2 - 1, scale_factor=float(CELL_PX)),)

    def encode(self, pixels: Tensor) -> Any:
        self._see(pixels.shape[2] * pixels.shape[3], pixels)
        mode = functional.pad(functional.avg_pool2d(pixels, CELL_PX), (0, 0, 0, 0, 0, 1))
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: mode))

    def _see(self, count_px: int, x: Tensor) -> None:
        if count_px > self.full_px:
            raise torch.OutOfMemoryError
        self.seen.append(tuple(x.shape))


class Doubler:
    """An upscaler that repeats pixels."""

    scale, channels = 2, 3

    def upscale(self, pictures: Tensor) -> Tensor:
        assert pictures.shape[1] == self.channels
        return functional.interpolate(pictures, scale_factor=2.0)


class Pool:
    def __init__(self) -> None:
        self.half = Half()
        config = {"latent_channels": 4, "block_out_channels": (1, 1, 1, 1)}
        self.autoencoder: Any = KlAutoencoder(self.half, self.half, config)  # type: ignore[arg-type]

    def vae(self, ref: VaeRef) -> Any:
        assert ref == VAE
        return self.autoencoder

    def upscaler(self, ref: UpscaleRef) -> Doubler:
        assert ref == UPSCALER
        return Doubler()


def call(name: str, pool: Pool, **inputs: Any) -> Any:
    """Run a function and return its only output."""
    function = FUNCTIONS[name]
    (value,) = function.execute(function.load_model(inputs, pool), **inputs).values()
    return value


def carry_out(plan: dict[str, Any], function: str, meaning: str, pool: Pool, **inputs: Any) -> Any:
    """Run a plan as the nodes do."""
    total = None
    for each in plan["passes"]:
        tiles = [call(function, pool, **inputs, **part) for part in each["parts"]]
        total = call("tiles.blend", pool, tiles=tiles, scale=plan["scale"], previous=total, **each)
    return call("tiles.mean", pool, total=total, passes=len(plan["passes"]), meaning=meaning)


def plan_vae(pool: Pool, shape: list[int], tile: int, overlap: int, is_decoding: bool) -> Any:
    return call(
        "vae.plan_tiles",
        pool,
        vae=VAE,
        shape=shape,
        tile_size=tile,
        overlap=overlap,
        is_decoding=is_decoding,
    )


def test_decoding_in_tiles_gives_the_pictures_of_decoding_at_once() -> None:
    pool, samples = Pool(), torch.rand(2, 4, 20, 30, generator=torch.Generator().manual_seed(1))
    plan = plan_vae(pool, [2, 4, 20, 30], 64, 16, is_decoding=True)
    images = carry_out(plan, "vae.decode_tiles", "decoded", pool, vae=VAE, samples=samples)
    assert {shape[2:] for shape in pool.half.seen} >= {(8, 8), (4, 16), (16, 4)}
    torch.testing.assert_close(images, pool.autoencoder.decode(samples))


def test_encoding_in_tiles_gives_the_latents_of_encoding_at_once_without_alpha() -> None:
    pool, pixels = Pool(), torch.rand(2, 165, 203, 4, generator=torch.Generator().manual_seed(2))
    plan = plan_vae(pool, [2, 165, 203, 4], 64, 16, is_decoding=False)
    samples = carry_out(plan, "vae.encode_tiles", "latent", pool, vae=VAE, pixels=pixels)
    assert {shape[2:] for shape in pool.half.seen} >= {(64, 64), (32, 128), (128, 32)}
    torch.testing.assert_close(samples, pool.autoencoder.encode(pixels[..., :3]), atol=1e-5, rtol=1e-5)


def test_upscaling_in_tiles_keeps_the_colours_and_drops_alpha() -> None:
    pool, images = Pool(), torch.rand(2, 530, 20, 4, generator=torch.Generator().manual_seed(3))
    plan = call("image.plan_upscale", pool, upscaler=UPSCALER, shape=[2, 530, 20, 4])
    assert [len(each["boxes"]) for each in plan["passes"][0]["parts"]] == [1, 1, 1, 1]
    larger = carry_out(plan, "image.upscale_tiles", "picture", pool, upscaler=UPSCALER, images=images)
    expected = images[..., :3].repeat_interleave(2, 1).repeat_interleave(2, 2)
    torch.testing.assert_close(larger, expected)


def test_what_fits_into_one_tile_is_one_part_of_each_pass() -> None:
    plan = plan_vae(Pool(), [1, 4, 8, 8], 512, 64, is_decoding=True)
    parts = [each["parts"] for each in plan["passes"]]
    assert parts == [[{"item": 0, "boxes": [[0, 0, 8, 8]]}]] * 3


def test_small_tiles_are_computed_together_and_usual_ones_each_for_itself() -> None:
    def most_px(tile: int) -> Any:
        plan = plan_vae(Pool(), [1, 4096, 4096, 3], tile, 0, is_decoding=False)
        sizes = [
            sum(h * w for _, _, h, w in part["boxes"]) for each in plan["passes"] for part in each["parts"]
        ]
        return max(sizes)

    assert most_px(64) == most_px(512) == PART_PX
    assert most_px(1024) == 1024 * 1024


@pytest.mark.parametrize(
    ("tile", "overlap", "is_decoding", "used"),
    [
        (512, 64, True, 8),
        (64, 64, True, 2),
        (256, 128, True, 8),
        (512, 160, True, 16),
        (512, 160, False, 160),
        (512, 256, False, 128),
        (128, 64, False, 32),
        (64, 4096, False, 16),
    ],
)
def test_an_overlap_that_leaves_no_room_becomes_a_quarter_of_a_tile(
    tile: int, overlap: int, is_decoding: bool, used: int
) -> None:
    shape = [1, 4, 64, 64] if is_decoding else [1, 1024, 1024, 3]
    plan = plan_vae(Pool(), shape, tile, overlap, is_decoding)
    assert [each["overlap"] for each in plan["passes"]] == [used] * 3
    assert all(each["parts"] for each in plan["passes"])


@pytest.mark.parametrize("shape", [[1, 4, 8], [0, 4, 8, 8], [1, 4, 2, 8, 8]])
def test_shapes_that_are_no_pictures_are_refused(shape: list[int]) -> None:
    with pytest.raises(PromptError, match="four sides above 0"):
        plan_vae(Pool(), shape, 512, 64, is_decoding=True)
    with pytest.raises(PromptError, match="four sides above 0"):
        call("image.plan_upscale", Pool(), upscaler=UPSCALER, shape=shape)


def test_latents_of_another_family_are_refused() -> None:
    with pytest.raises(PromptError, match="belongs to another model family"):
        call(
            "vae.decode_tiles", Pool(), vae=VAE, samples=torch.zeros(1, 16, 8, 8), item=0, boxes=[[0, 0, 8, 8]]
        )


def test_decoding_and_encoding_without_memory_for_the_whole_go_on_in_tiles() -> None:
    pool = Pool()
    samples = torch.rand(1, 4, 80, 70, generator=torch.Generator().manual_seed(4))
    pixels = torch.rand(1, 640, 560, 3, generator=torch.Generator().manual_seed(5))
    expected = pool.autoencoder.decode(samples), pool.autoencoder.encode(pixels)
    pool.half.full_px, pool.half.seen = 512 * 512, []
    got = pool.autoencoder.decode(samples), pool.autoencoder.encode(pixels)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert len(pool.half.seen) > 6
    exact = run_in_tiles(
        samples, pool.autoencoder.decode_part, three_tilings(64, 16, is_square_first=False), Fraction(8)
    )
    assert torch.equal(got[0], ((exact + 1) / 2).clamp(0, 1).movedim(1, -1))
    pool.half.full_px = 100
    with pytest.raises(torch.OutOfMemoryError):
        pool.autoencoder.decode(samples)
