"""Describe and load the families whose network is a latent-diffusion U-Net (Rombach et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from comfyserverless.core.values import Patch
from comfyserverless.models.families.base import ModelFacts, Prediction
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.unet import LoadedUnet, VectorCondition, load_unet
from comfyserverless.models.unet_layout import UnetLayout, read_layout


def _predict_epsilon(root: Weights, network: Weights) -> Prediction:
    return "epsilon"


def _usual_process(root: Weights) -> None:
    return None


@dataclass(frozen=True, slots=True)
class UnetFamily:
    """One U-Net family: which layouts are its own, and what it adds to the network.

    prediction: reads what the network predicts from (file, network); condition: makes the vector condition;
    process: reads the noise process from the file, None if it is the family's.
    """

    name: str
    scale_factor: float
    accepts: Callable[[UnetLayout], bool]
    prediction: Callable[[Weights, Weights], Prediction] = _predict_epsilon
    condition: VectorCondition | None = None
    process: Callable[[Weights], Patch | None] = _usual_process

    def describe(self, root: Weights, network: Weights) -> ModelFacts | None:
        """Return the facts of a U-Net of this family, None for anything else."""
        if "input_blocks.0.0.weight" not in network or "out.2.weight" not in network:
            return None
        layout = read_layout(network)
        if not self.accepts(layout):
            return None
        return ModelFacts(
            family=self.name,
            latent_channels=layout.out_channels,
            in_channels=layout.in_channels,
            scale_factor=self.scale_factor,
            prediction=self.prediction(root, network),
            context_width=layout.context_width,
            adm_width=layout.adm_width,
            model_channels=layout.level_channels[0],
            process=self.process(root),
        )

    def load(self, network: Weights, facts: ModelFacts, residence: Residence) -> LoadedUnet:
        """Make the U-Net ready to run. Raises ModelFileError if tensors are missing or do not fit."""
        return load_unet(network, facts, residence, self.condition)
