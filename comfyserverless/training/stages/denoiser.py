"""Learn to draw: the denoiser and the text encoder together, on pictures of several sizes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.networks.drawer import TextEncoder, make_unet
from comfyserverless.training.pools import CAPTIONS, Pool, SizePx
from comfyserverless.training.scenery.vocabulary import TOKENS, end_row, start_row
from comfyserverless.training.stages.diffusion import denoising_loss

_NO_CAPTION_SHARE = 0.12
"""Captions that are left out, so that guidance has an unconditional side (Ho and Salimans 2022)."""
_UNKNOWN_SHARE = 0.4
"""Of these, those that become unknown words instead of nothing."""
_MOST_UNKNOWN = 30
_CELLS = 256
"""Cells of the latent for which `batch` is meant; larger canvases get smaller batches of the same cost."""

Shares = Mapping[SizePx, tuple[float, float]]
"""Share of the steps that each size gets, at the beginning and at the end."""


class Drawer(nn.Module):
    """Denoiser and text encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = make_unet()
        self.text = TextEncoder()


class DenoiserStage:
    """Noise prediction on pools of examples."""

    name = "denoiser"

    def __init__(self, pace: Pace, pools: Mapping[SizePx, Pool], shares: Shares, batch: int) -> None:
        self.pace = pace
        self.module = Drawer()
        self._pools = pools
        self._shares = shares
        self._batch = batch

    def loss(self, turn: Turn) -> Tensor:
        """Return the denoising loss of a batch of one size."""
        pool = self._pools[self._choose_size(turn)]
        count = max(1, round(self._batch * _CELLS / pool.latents[0, 0].numel()))
        chosen = torch.randint(len(pool), (count,), generator=turn.own)
        wording = torch.randint(CAPTIONS, (count,), generator=turn.own)
        context = self.module.text(_with_captions_left_out(pool.rows[chosen, wording], turn.own))
        unet = self.module.unet
        return denoising_loss(lambda x, t: unet(x, t, context).sample, pool.latents[chosen], turn.own)

    def matrices(self) -> list[nn.Parameter]:
        """Return the denoiser's weights but those of its first and last layer."""
        return inner_matrices(self.module.unet)

    def _choose_size(self, turn: Turn) -> SizePx:
        soon = min(1.0, 2 * turn.done)
        shares = [first * (1 - soon) + last * soon for first, last in self._shares.values()]
        at = turn.shared.choice(len(shares), p=[share / sum(shares) for share in shares])
        return list(self._shares)[int(at)]


def inner_matrices(network: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a network with at least two dimensions, without its first and last layer."""
    return [
        parameter
        for name, parameter in network.named_parameters()
        if parameter.ndim >= 2 and not name.startswith(("conv_in", "conv_out"))
    ]


def empty_rows() -> Tensor:
    """Return the rows [77] of an empty text."""
    rows = torch.full((TOKENS,), end_row())
    rows[0] = start_row()
    return rows


def _with_captions_left_out(rows: Tensor, generator: torch.Generator) -> Tensor:
    rows = rows.clone()
    is_out = torch.rand(len(rows), generator=generator) < _NO_CAPTION_SHARE
    rows[is_out] = empty_rows()
    is_unknown = is_out & (torch.rand(len(rows), generator=generator) < _UNKNOWN_SHARE)
    for at in is_unknown.nonzero()[:, 0].tolist():
        rows[at, 1 : 1 + int(torch.randint(1, _MOST_UNKNOWN, (), generator=generator))] = 0
    return rows
