"""Put another noise process in place of a model's own."""

from __future__ import annotations

from dataclasses import replace

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.patching.options import OptionsBuilder
from comfyserverless.sampling.parametrization import DiscreteParametrization, Prediction
from comfyserverless.sampling.processes.continuous import (
    AngleParametrization,
    ContinuousParametrization,
    FlowParametrization,
)
from comfyserverless.sampling.processes.discrete import ConsistencyParametrization, zero_terminal_levels

_PREDICTIONS: dict[str, Prediction] = {
    "eps": "epsilon",
    "v_prediction": "v_prediction",
    "x0": "sample",
    "img_to_img": "image_to_image",
    "edm": "edm",
    "edm_playground_v2.5": "edm",
}
_EDM_SIGMA_DATA = 0.5

_PLAYGROUND_SCALE = 0.5
_PLAYGROUND_MEANS = (-1.6574, 1.886, -1.383, 2.5155)
_PLAYGROUND_STDS = (8.4927, 5.9022, 6.5498, 5.2299)
"""Statistics of the latents that Playground v2.5 was trained on (Li et al. 2024, arXiv 2402.17245)."""


def discrete(builder: OptionsBuilder, sampling: str, zsnr: bool) -> None:
    """Change what a network with trained timesteps predicts; zsnr: no signal is left at the highest level.

    Raises PromptError for an unknown prediction, as the other builders do.
    """
    levels = zero_terminal_levels() if zsnr else None
    if sampling == "lcm":
        builder.parametrization = ConsistencyParametrization(levels)
    else:
        builder.parametrization = DiscreteParametrization(_prediction(sampling), levels)


def edm(builder: OptionsBuilder, sampling: str, sigma_max: float, sigma_min: float) -> None:
    """Call the network with log(sigma) / 4 (Karras et al. 2022), or as a flow."""
    _check_levels(sigma_max, sigma_min)
    if sampling == "cosmos_rflow":
        builder.parametrization = FlowParametrization("rectified_flow", sigma_min, sigma_max)
        return
    prediction = _prediction(sampling)
    sigma_data = _EDM_SIGMA_DATA if prediction == "edm" else 1.0
    builder.parametrization = ContinuousParametrization(prediction, sigma_min, sigma_max, sigma_data)
    if sampling == "edm_playground_v2.5":
        builder.facts = replace(
            builder.facts,
            scale_factor=_PLAYGROUND_SCALE,
            latent_means=_PLAYGROUND_MEANS,
            latent_stds=_PLAYGROUND_STDS,
        )


def velocity(builder: OptionsBuilder, sampling: str, sigma_max: float, sigma_min: float) -> None:
    """Call the network with the angle of noise to signal."""
    _check_levels(sigma_max, sigma_min)
    builder.parametrization = AngleParametrization(_prediction(sampling), sigma_min, sigma_max)


def _prediction(sampling: str) -> Prediction:
    if sampling not in _PREDICTIONS:
        raise PromptError(f"sampling {sampling!r} is not supported; known: {', '.join(_PREDICTIONS)}")
    return _PREDICTIONS[sampling]


def _check_levels(sigma_max: float, sigma_min: float) -> None:
    if not 0 < sigma_min <= sigma_max:
        raise PromptError(
            f"levels from {sigma_min:g} to {sigma_max:g}: allowed are levels above 0, the lower one first"
        )
