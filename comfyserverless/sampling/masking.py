"""Keep parts of an image while the rest is sampled: the latent's noise mask.

Before every evaluation the kept part is replaced by the original at the same noise level, and after it by the
original itself (Lugmayr et al. 2022, RePaint, equation 8, without resampling). A mask may also say how much
each cell is to change (Levin and Fried 2023, Differential Diffusion, arXiv 2306.00950): a cell is kept until
the walk has come down to the share of its way that the mask says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import Parametrization
from comfyserverless.sampling.stacking import fit_batch


@dataclass(frozen=True, slots=True)
class KeptPart:
    """What masked sampling needs beside the walk; all tensors of one shape [B, C, h, w].

    mask: 1 where the image is sampled, 0 where it is kept; noise: what the kept part is noised with; latent:
    the original, in the model's units; change: of `gradual_change` if cells are to change one after the other.
    """

    mask: Tensor
    noise: Tensor
    latent: Tensor
    change: Mapping[str, float] | None = None

    def at(self, sigma: Tensor, parametrization: Parametrization) -> KeptPart:
        """Return what is kept at noise level sigma."""
        if self.change is None:
            return self
        strength, first, last = (self.change[name] for name in ("strength", "first", "last"))
        timestep = parametrization.timestep(sigma).to(self.mask)
        share_left = (timestep - last) / torch.tensor(first - last).to(self.mask)
        mask = (self.mask >= share_left).to(self.mask)
        if 0.0 < strength < 1.0:
            mask = strength * mask + (1.0 - strength) * self.mask
        return replace(self, mask=mask, change=None)

    def before(self, x: Tensor, sigma: Tensor, parametrization: Parametrization) -> Tensor:
        """Return x with the kept part at noise level sigma."""
        return x * self.mask + parametrization.add_noise(sigma, self.noise, self.latent) * (1.0 - self.mask)

    def after(self, denoised: Tensor) -> Tensor:
        """Return the denoised latent with the original in the kept part."""
        return denoised * self.mask + self.latent * (1.0 - self.mask)


def gradual_change(strength: float, sigmas: Tensor, parametrization: Parametrization) -> dict[str, float]:
    """Return as literals how cells change one after the other in a walk over `sigmas`.

    strength: below 1, the mask's own values are mixed in; 0 counts as 1.
    """
    last = max(float(sigmas[-1]), parametrization.sigma_min)
    return {
        "strength": strength,
        "first": float(parametrization.timestep(sigmas[0])),
        "last": float(parametrization.timestep(torch.tensor(last))),
    }


def latent_mask(mask: Tensor, latent: Tensor) -> Tensor:
    """Resize a mask ([H, W], [B, H, W] or [B, 1, H, W], 0..1) bilinearly to the latent's shape."""
    cells = mask.reshape(-1, 1, mask.shape[-2], mask.shape[-1]).to(latent)
    resized = torch.nn.functional.interpolate(cells, size=latent.shape[-2:], mode="bilinear")
    return fit_batch(resized.expand(-1, latent.shape[1], -1, -1), latent.shape[0])
