"""Load and run T2I-Adapters: like ControlNets for their users, on the encoder's side of a U-Net."""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.models.adapters.layout import read_adapter_layout
from comfyserverless.models.adapters.network import Adapter, AdapterLayout
from comfyserverless.models.controlnet import fit_hint
from comfyserverless.models.modules import compute_dtype
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner


class T2IAdapter:
    """A T2I-Adapter on its device.

    block_numbers: of the input blocks that its features are added to, in the order of `residuals`.
    """

    def __init__(self, runner: Runner[Adapter], layout: AdapterLayout) -> None:
        self.block_numbers = layout.block_numbers
        self.device = runner.device
        self.resident = runner.base
        self._dtype = compute_dtype(self.device)
        self._runner = runner
        self._layout = layout

    @torch.no_grad()
    def residuals(
        self, x_in: Tensor, timesteps: Tensor, context: Tensor, hint: Tensor, adm: Tensor | None = None
    ) -> list[Tensor]:
        """Return the features of a hint, at strength 1: float32 [N, ...], N as in x_in.

        hint: [1 or N, C, H, W] of `prepare_hint`; of the others only x_in's count matters.
        """
        with self._runner.running() as module:
            features = module(hint.to(device=self.device, dtype=self._dtype))
        return [feature.float().expand(x_in.shape[0], -1, -1, -1).contiguous() for feature in features]

    def prepare_hint(self, image: Tensor, width_px: int, height_px: int) -> Tensor:
        """Return an IMAGE [B, H, W, C] as a hint [B, 1 or 3, H, W] (see fit_hint), in whole squares."""
        side = self._layout.unshuffle
        hint = fit_hint(image, -(-width_px // side) * side, -(-height_px // side) * side)
        return hint.mean(1, keepdim=True) if self._layout.hint_channels == 1 else hint


def load_adapter(weights: Weights, residence: Residence) -> T2IAdapter:
    """Make an adapter (of `find_adapter`) ready to run. Raises ModelFileError for unknown structures."""
    layout = read_adapter_layout(weights)
    skeleton = residence.skeletons.take("t2i adapter", {"layout": layout}, lambda: Adapter(layout))
    recipes = residence.recipes(skeleton, weights, {name: name for name in weights})
    base = residence.register("controlnet", recipes, ((),))
    return T2IAdapter(Runner(residence.keeper, skeleton, base, {}), layout)
