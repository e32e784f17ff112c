"""Turn latents of a graph into the units that a model works in, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.models.families.base import ModelFacts


def to_model_units(samples: Tensor, facts: ModelFacts) -> Tensor:
    """Shift and scale a latent for the model; an empty one stays empty, whatever the shift is."""
    if torch.count_nonzero(samples) == 0:
        return samples
    if facts.latent_means:
        means, stds = _channels(facts, samples)
        return (samples - means) * facts.scale_factor / stds
    shifted = samples - facts.shift_factor if facts.shift_factor else samples
    return shifted * facts.scale_factor


def to_output_units(x: Tensor, facts: ModelFacts) -> Tensor:
    """Return a latent of the model in the units that a graph's LATENT holds."""
    if facts.latent_means:
        means, stds = _channels(facts, x)
        return x * stds / facts.scale_factor + means
    samples = x / facts.scale_factor
    return samples + facts.shift_factor if facts.shift_factor else samples


def _channels(facts: ModelFacts, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations by channel, [C, 1, 1]."""
    means, stds = (
        torch.tensor(values).reshape(-1, 1, 1).to(x) for values in (facts.latent_means, facts.latent_stds)
    )
    return means, stds
