"""Models made of a formula: real subclasses of the interfaces, whose results a test can compute by hand."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import ControlNetRef, FileRef, ModelRef, VaeRef
from comfyserverless.models.autoencoder import Autoencoder
from comfyserverless.models.families.base import DiffusionModel, ModelFacts
from comfyserverless.models.previews.previewer import Previewer
from comfyserverless.models.tiny.decoder import TinyDecoder

FACTS = ModelFacts("sd15", 4, 4, 0.18215, "epsilon", context_width=8)
MODEL = ModelRef(FileRef("/models/analytic"))
CONTROL = ControlNetRef(FileRef("/models/analytic_control"))


class AnalyticDiffusion(DiffusionModel):
    """Predict noise as 0.1 x + mean of the context / 100 + the residuals; keep what it was called with."""

    def __init__(self) -> None:
        self.facts = FACTS
        self.device = torch.device("cpu")
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []
        self.options: list[MutableMapping[str, Any] | None] = []

    def predict(
        self,
        x_in: Tensor,
        timesteps: Tensor,
        context: Tensor,
        adm: Tensor | None = None,
        residuals: Sequence[Tensor] | None = None,
        options: MutableMapping[str, Any] | None = None,
    ) -> Tensor:
        self.calls.append((x_in, timesteps, context))
        self.options.append(options)
        output = 0.1 * x_in + context.mean(dim=(1, 2)).reshape(-1, 1, 1, 1) / 100
        for index in range(len(residuals or ())):
            output = output + residuals[index]  # type: ignore[index]
        return output

    def adm(
        self, pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
    ) -> Tensor | None:
        return None


class AnalyticControlNet:
    """Add the mean of the hint to each item, in one residual."""

    residual_count = 1

    def prepare_hint(self, image: Tensor, width_px: int, height_px: int) -> Tensor:
        assert (width_px, height_px) == (image.shape[2], image.shape[1])
        return image.movedim(-1, 1)

    def residuals(
        self, x_in: Tensor, timesteps: Tensor, context: Tensor, hint: Tensor, adm: Tensor | None = None
    ) -> list[Tensor]:
        return [torch.ones_like(x_in) * hint.mean(dim=(1, 2, 3)).reshape(-1, 1, 1, 1)]


class AnalyticPool:
    """The part of a model pool that sampling functions use, over analytic models."""

    def __init__(self) -> None:
        self.model = AnalyticDiffusion()
        self.previewer = Previewer(self)

    def facts(self, ref: ModelRef) -> ModelFacts:
        return self.model.facts

    def diffusion(self, ref: ModelRef) -> DiffusionModel:
        return self.model

    def controlnet(self, ref: ControlNetRef) -> AnalyticControlNet:
        return AnalyticControlNet()

    def vae(self, ref: VaeRef) -> Autoencoder:
        raise ModelFileError("there is no autoencoder")

    def tiny_decoder(self, file: FileRef) -> TinyDecoder:
        raise ModelFileError("there is no decoder")


def conditioning(value: float = 1.0, tokens: int = 77, **options: Any) -> list[list[Any]]:
    """Return a CONDITIONING of one entry whose features are all `value`."""
    return [[torch.full((1, tokens, FACTS.context_width), value), options]]
