"""Keep parts of an image while the rest is sampled: the latent's noise mask.

Before every evaluation the kept part is replaced by the original at the same noise level, and after it by the
original itself (Lugmayr et al. 2022, RePaint, equation 8, without resampling).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from comfyserverless.sampling.guidance import fit_batch
from comfyserverless.sampling.parametrization import Parametrization


@dataclass(frozen=True, slots=True)
class KeptPart:
    """What masked sampling needs beside the walk; all of one shape [B, C, h, w].

    mask: 1 where the image is sampled, 0 where it is kept; noise: what the kept part is noised with; latent:
    the original, in the model's units.
    """

    mask: Tensor
    noise: Tensor
    latent: Tensor

    def before(self, x: Tensor, sigma: Tensor, parametrization: Parametrization) -> Tensor:
        """Return x with the kept part at noise level sigma."""
        return x * self.mask + parametrization.add_noise(sigma, self.noise, self.latent) * (1.0 - self.mask)

    def after(self, denoised: Tensor) -> Tensor:
        """Return the denoised latent with the original in the kept part."""
        return denoised * self.mask + self.latent * (1.0 - self.mask)


def latent_mask(mask: Tensor, latent: Tensor) -> Tensor:
    """Resize a mask ([H, W], [B, H, W] or [B, 1, H, W], 0..1) bilinearly to the latent's shape."""
    cells = mask.reshape(-1, 1, mask.shape[-2], mask.shape[-1]).to(latent)
    resized = torch.nn.functional.interpolate(cells, size=latent.shape[-2:], mode="bilinear")
    return fit_batch(resized.expand(-1, latent.shape[1], -1, -1), latent.shape[0])
