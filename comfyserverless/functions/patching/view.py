"""Show a model to patches as ComfyUI does: the object in `args["model"]`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

from comfyserverless.functions.patching.subject import Subject
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.families.units import to_model_units, to_output_units
from comfyserverless.models.patching.calling import call
from comfyserverless.sampling.processes.foreign import ForeignParametrization, ModelSamplingView


class Evaluates(Protocol):
    """What a view hands on to the evaluation in progress."""

    def apply_model(self, x: Tensor, t: Tensor, **inputs: Any) -> Tensor:
        """Return the estimate of the clean latent for stacked entries."""

    def calc_cond_batch(self, conds: Sequence[Any], x: Tensor, timestep: Tensor, options: Any) -> list[Tensor]:
        """Return the estimate for each list of conditionings."""


class LatentFormat:
    """The units of a model's latents."""

    def __init__(self, facts: ModelFacts) -> None:
        self._facts = facts
        self.scale_factor = facts.scale_factor
        self.shift_factor = facts.shift_factor
        self.latent_channels = facts.latent_channels
        self.latent_dimensions = 2
        self.spacial_downscale_ratio = facts.downscale_px

    def process_in(self, latent: Tensor) -> Tensor:
        """Return a latent of a graph in the model's units."""
        return to_model_units(latent, self._facts)

    def process_out(self, latent: Tensor) -> Tensor:
        """Return a latent of the model in the units of a graph."""
        return to_output_units(latent, self._facts)


class ModelView:
    """A model as patches see it; without an evaluation in progress it cannot be run."""

    def __init__(self, subject: Subject, evaluation: Evaluates | None = None) -> None:
        facts, process = subject.facts, subject.parametrization
        self.model_sampling: Any = (
            process.model_sampling
            if isinstance(process, ForeignParametrization)
            else ModelSamplingView(process)
        )
        self.latent_format = LatentFormat(facts)
        self.model_config = SimpleNamespace(
            unet_config={
                "model_channels": facts.model_channels,
                "in_channels": facts.in_channels,
                "context_dim": facts.context_width,
                "adm_in_channels": facts.adm_width,
            },
            latent_format=self.latent_format,
        )
        self.inner_model = self
        self.current_patcher = SimpleNamespace(model_options=subject.options or {}, model=self, ref=None)
        self._evaluation = evaluation

    def process_latent_in(self, latent: Tensor) -> Tensor:
        """Return a latent of a graph in the model's units."""
        return self.latent_format.process_in(latent)

    def process_latent_out(self, latent: Tensor) -> Tensor:
        """Return a latent of the model in the units of a graph."""
        return self.latent_format.process_out(latent)

    def apply_model(self, x: Tensor, t: Tensor, **inputs: Any) -> Tensor:
        """Return the estimate of the clean latent for stacked entries at levels t."""
        return self._running("apply_model").apply_model(x, t, **inputs)

    def calc_cond_batch(self, conds: Sequence[Any], x: Tensor, timestep: Tensor, options: Any) -> list[Tensor]:
        """Return the estimate for each list of conditionings; `comfy.samplers.calc_cond_batch` ends here."""
        return self._running("calc_cond_batch").calc_cond_batch(conds, x, timestep, options)

    def get_dtype(self) -> torch.dtype:
        """Return the type that latents have between evaluations."""
        return torch.float32

    def _running(self, name: str) -> Evaluates:
        if self._evaluation is None:
            raise AttributeError(f"a model's {name} can be called while it is evaluated only")
        return self._evaluation

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r} of a model cannot be had where patches run, on the workers")


def mask_at(sigma: Tensor, mask: Tensor, sigmas: Sequence[float], subject: Subject) -> Tensor:
    """Return what denoise_mask_function makes of a latent's mask at a level of a walk over `sigmas`."""
    function = (subject.options or {})["denoise_mask_function"]
    extra = {"model": ModelView(subject), "sigmas": torch.tensor(sigmas, dtype=torch.float32)}
    levels = sigma.to(mask).expand(mask.shape[0])
    changed: Tensor = call("denoise_mask_function", function, levels, mask, extra_options=extra)
    return changed
