"""Make pictures larger with the network of a file."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor, nn

from comfyserverless.core.errors import PromptError
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.models.resident.skeleton import Runner, Skeleton, steps_of
from comfyserverless.models.tiles.blending import Tiling, run_in_tiles
from comfyserverless.models.upscaling.foreign import load_foreign
from comfyserverless.models.upscaling.rrdb import Rrdb, rrdb_order
from comfyserverless.models.upscaling.rrdb_layout import find_rrdb, read_rrdb_layout

TILE_PX = 512
OVERLAP_PX = 32
_SMALLEST_TILE_PX = 128


class Upscaler:
    """An upscaler on its device.

    scale: how many times larger pictures become, per side; channels: of the pictures.
    """

    def __init__(self, runner: Runner[nn.Module], scale: int, channels: int) -> None:
        self.scale = scale
        self.channels = channels
        self.device = runner.device
        self.residents: tuple[ResidentModel, ...] = (runner.base,)
        self._runner = runner

    @torch.no_grad()
    def upscale(self, pictures: Tensor) -> Tensor:
        """Return [B, C, H * scale, W * scale] float32 in 0..1 on the CPU, of [B, C, H, W] in 0..1.

        What does not fit into the device's memory goes through it in smaller tiles, as small as 128 pixels.
        Raises PromptError for pictures of another number of channels.
        """
        if pictures.ndim != 4 or pictures.shape[1] != self.channels:
            raise PromptError(
                f"this upscale model takes pictures of {self.channels} channels, got shape"
                f" {list(pictures.shape)} (batch, channels, height, width)"
            )
        side_px = TILE_PX
        while True:
            try:
                if side_px == TILE_PX:
                    return self._run(pictures)
                tilings = (Tiling(side_px, side_px, OVERLAP_PX),)
                return run_in_tiles(pictures, self._run, tilings, Fraction(self.scale))
            except torch.OutOfMemoryError:
                side_px //= 2
                if side_px < _SMALLEST_TILE_PX:
                    raise
            torch.cuda.empty_cache()

    def _run(self, pictures: Tensor) -> Tensor:
        with self._runner.running() as module:
            made: Tensor = module(pictures.to(self.device, torch.float32))
            return made.clamp(0.0, 1.0).cpu()


def load_upscaler(root: Weights, residence: Residence) -> Upscaler:
    """Make the upscaler of a file ready to run: ESRGAN by this project, any other by spandrel.

    Raises ModelFileError for files that neither knows, or if spandrel is needed and not installed.
    """
    weights = find_rrdb(root)
    if weights is None:
        foreign = load_foreign(root, residence)
        return Upscaler(foreign.runner, foreign.scale, foreign.channels)
    layout = read_rrdb_layout(weights)
    skeleton: Skeleton[nn.Module] = residence.skeletons.take("rrdb", {"layout": layout}, lambda: Rrdb(layout))
    recipes = residence.recipes(skeleton, weights, {name: name for name in weights}, torch.float32)
    order = rrdb_order(layout)
    base = residence.register("upscaler", recipes, order)
    runner = Runner(residence.keeper, skeleton, base, steps_of(order))
    return Upscaler(runner, layout.scale, layout.in_channels // layout.unshuffle**2)
