"""Say what every family of diffusion models offers, whatever its network is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from comfyserverless.core.values import Patch
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel

Prediction = Literal["epsilon", "v_prediction"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What sampling must know of a model; read from the file's header.

    latent_channels: of the latent; in_channels: of the network's input (more than the latent's for inpainting
    models); scale_factor, shift_factor: network units = (output units - shift) * scale; latent_means,
    latent_stds: by channel, taken off before and divided by after, where a format has them; downscale_px:
    pixels per latent cell; adm_width: of the vector condition, None without one; context_width: of the text
    features; model_channels: of a U-Net's finest level, 0 for other networks; process: the patch that puts the
    noise process of the file in place of the family's, None if it is that one.
    """

    family: str
    latent_channels: int
    in_channels: int
    scale_factor: float
    prediction: Prediction
    context_width: int
    adm_width: int | None = None
    shift_factor: float = 0.0
    downscale_px: int = 8
    model_channels: int = 0
    latent_means: tuple[float, ...] = ()
    latent_stds: tuple[float, ...] = ()
    process: Patch | None = None

    @property
    def inpainting_channels(self) -> int:
        """Return the input channels of an inpainting model: a latent, a mask, and a latent of what is kept."""
        return 2 * self.latent_channels + 1

    @property
    def is_inpainting(self) -> bool:
        """Tell whether the network also takes a mask and what it keeps."""
        return self.in_channels == self.inpainting_channels

    @property
    def editing_channels(self) -> int:
        """Return the input channels of a model that edits: a latent, and that of the picture."""
        return 2 * self.latent_channels

    @property
    def is_editing(self) -> bool:
        """Tell whether the network also takes the latent of a picture that it changes as it is told."""
        return self.in_channels == self.editing_channels


class DiffusionModel(ABC):
    """A diffusion network on its device, with LoRAs merged; takes and returns tensors on any device.

    models: the layers that it runs, the base first.
    """

    facts: ModelFacts
    device: torch.device
    models: tuple[ResidentModel, ...]

    @abstractmethod
    def predict(
        self,
        x_in: Tensor,
        timesteps: Tensor,
        context: Tensor,
        adm: Tensor | None = None,
        residuals: Sequence[Tensor] | None = None,
        options: MutableMapping[str, Any] | None = None,
    ) -> Tensor:
        """Run the network once.

        x_in: [N, in_channels, h, w] already scaled for the network; timesteps: [N]; context: [N, T, width];
        adm: [N, adm_width] where the family has one; residuals: of a ControlNet, input blocks in order, then
        the middle block, each [N, ...], read as late as possible; options: ComfyUI's transformer_options, with
        patches, None to run without any. Returns the raw output [N, latent_channels, h, w] float32. Inputs but
        options are unchanged. Raises PromptError when widths do not fit this model.
        """

    @abstractmethod
    def adm(
        self, pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
    ) -> Tensor | None:
        """Return the vector condition [B, adm_width] for a picture of this size, None if the family has none.

        pooled: [B, P] of the text encoder; options: of the conditioning, may hold width, height, crop_w,
        crop_h, target_width, target_height. Raises PromptError if the family needs `pooled` and it is None
        or does not fit.
        """


class Family(Protocol):
    """One family of diffusion models."""

    @property
    def name(self) -> str:
        """The family's name in ModelFacts."""

    def describe(self, root: Weights, network: Weights) -> ModelFacts | None:
        """Return the facts of a file of this family, None if it is another's.

        root: the whole file; network: the diffusion network in it, without prefix.
        """

    def load(self, network: Weights, facts: ModelFacts, residence: Residence) -> LoadedNetwork:
        """Make the network ready to run; weights follow layer by layer when it does.

        Raises ModelFileError if tensors are missing or do not fit.
        """


class LoadedNetwork(Protocol):
    """A network of one file, shared by every handle of that file.

    names: from the tensor name in the file (without prefix) to the parameter's name; resident: its layers.
    """

    facts: ModelFacts
    names: Mapping[str, str]
    resident: ResidentModel

    def model(self, private: ResidentModel | None) -> DiffusionModel:
        """Return a model with the layers of the file, under private ones where there are any."""
