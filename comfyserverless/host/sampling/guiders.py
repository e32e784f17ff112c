"""Guide samplers (`comfy.samplers.CFGGuider`), here or, where nothing of a pack takes part, wholly on the
workers.

A guider whose methods are its own, with a sampler of the engine and nobody who looks at every step, is one
internal node: the walk's steps are calls of their own there, as of any KSampler. Otherwise this process drives
the walk, and each evaluation of the model is a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.models.extension import WrapperExecutor, WrappersMP, get_all_wrappers
from comfyserverless.host.models.options import copy_options
from comfyserverless.host.models.patcher import ModelPatcher
from comfyserverless.host.sampling import remote
from comfyserverless.host.sampling.conditions import convert_cond
from comfyserverless.host.sampling.guidance import sampling_function
from comfyserverless.host.sampling.masks import prepare_mask
from comfyserverless.host.sampling.views import model_view


class CFGGuider:
    """Classifier-free guidance; packs override `predict_noise`."""

    def __init__(self, model_patcher: ModelPatcher) -> None:
        self.model_patcher = model_patcher
        self.model_options: dict[str, Any] = model_patcher.model_options
        self.original_conds: dict[str, Any] = {}
        self.conds: dict[str, Any] = {}
        self.cfg = 1.0
        self.inner_model: Any = None
        self.loaded_models: list[Any] = []

    def set_conds(self, positive: Any, negative: Any) -> None:
        """Take both sides."""
        self.inner_set_conds({"positive": positive, "negative": negative})

    def set_cfg(self, cfg: float) -> None:
        """Take the scale."""
        self.cfg = cfg

    def inner_set_conds(self, conds: Mapping[str, Any]) -> None:
        """Take sides by name."""
        for name, cond in conds.items():
            self.original_conds[name] = convert_cond(cond)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the guided estimate, as samplers ask for it."""
        return self.outer_predict_noise(*args, **kwargs)

    def outer_predict_noise(
        self, x: Tensor, timestep: Tensor, model_options: Mapping[str, Any] | None = None, seed: Any = None
    ) -> Tensor:
        """Return the estimate through the wrappers of PREDICT_NOISE."""
        wrappers = self._wrappers(WrappersMP.PREDICT_NOISE)
        executor = WrapperExecutor.new_class_executor(self.predict_noise, self, wrappers)
        estimate: Tensor = executor.execute(x, timestep, model_options or {}, seed)
        return estimate

    def predict_noise(
        self, x: Tensor, timestep: Tensor, model_options: Mapping[str, Any] | None = None, seed: Any = None
    ) -> Tensor:
        """Return the guided estimate of the clean latent, [B, C, h, w]."""
        sides = (self.conds.get("negative"), self.conds.get("positive"))
        return sampling_function(self.inner_model, x, timestep, *sides, self.cfg, model_options or {}, seed)

    def inner_sample(
        self,
        noise: Tensor,
        latent_image: Tensor,
        device: Any,
        sampler: Any,
        sigmas: Tensor,
        denoise_mask: Any,
        callback: Any,
        disable_pbar: bool,
        seed: Any,
        **more: Any,
    ) -> Tensor:
        """Return the sample; latents come and go in a graph's units."""
        model = self.inner_model
        if latent_image is not None and torch.count_nonzero(latent_image) > 0:
            latent_image = model.process_latent_in(latent_image)
        self.conds = {name: list(conds or ()) for name, conds in self.conds.items()}
        options = copy_options(self.model_options)
        options.setdefault("transformer_options", {})["sample_sigmas"] = sigmas
        extra_args = {"model_options": options, "seed": seed}
        executor = WrapperExecutor.new_class_executor(
            sampler.sample, sampler, self._wrappers(WrappersMP.SAMPLER_SAMPLE)
        )
        samples = executor.execute(
            self, sigmas, extra_args, callback, noise, latent_image, denoise_mask, disable_pbar
        )
        result: Tensor = model.process_latent_out(samples.to(torch.float32))
        return result

    def outer_sample(
        self,
        noise: Tensor,
        latent_image: Tensor,
        sampler: Any,
        sigmas: Tensor,
        denoise_mask: Any = None,
        callback: Any = None,
        disable_pbar: bool = False,
        seed: Any = None,
        **more: Any,
    ) -> Tensor:
        """Return the sample, with the model at hand."""
        self.inner_model = model_view(self.model_patcher)
        if denoise_mask is not None:
            denoise_mask = prepare_mask(denoise_mask, noise.shape, noise.device)
        self.model_patcher.pre_run()
        try:
            return self.inner_sample(
                noise, latent_image, noise.device, sampler, sigmas, denoise_mask, callback, disable_pbar, seed
            )
        finally:
            self.model_patcher.cleanup()
            self.inner_model = None

    def sample(
        self,
        noise: Tensor,
        latent_image: Tensor,
        sampler: Any,
        sigmas: Tensor,
        denoise_mask: Any = None,
        callback: Any = None,
        disable_pbar: bool = False,
        seed: Any = None,
    ) -> Tensor:
        """Return the sample at the last level, [B, C, h, w] float32; nothing to walk gives the latent back."""
        if sigmas.shape[-1] == 0:
            return latent_image
        walk = remote.Walk(noise, latent_image, sampler, sigmas, denoise_mask, callback, seed)
        if remote.can_run(self, walk):
            return remote.run(self, walk)
        self.conds = {name: [dict(each) for each in conds] for name, conds in self.original_conds.items()}
        before = self.model_options
        self.model_options = self.model_patcher.options_to_send(copy_options(before))
        try:
            executor = WrapperExecutor.new_class_executor(
                self.outer_sample, self, self._wrappers(WrappersMP.OUTER_SAMPLE)
            )
            output: Tensor = executor.execute(
                noise, latent_image, sampler, sigmas, denoise_mask, callback, disable_pbar, seed
            )
        finally:
            self.model_options = before
            self.conds = {}
        return output

    def _wrappers(self, kind: str) -> list[Any]:
        return get_all_wrappers(kind, self.model_options, is_model_options=True)


class ThreeSided(CFGGuider):
    """The guiders of built-in nodes that put three sides together (`DualCFGGuider`, `PerpNegGuider`)."""

    guide: Mapping[str, Any]

    def predict_noise(
        self, x: Tensor, timestep: Tensor, model_options: Mapping[str, Any] | None = None, seed: Any = None
    ) -> Tensor:
        """Return the guided estimate."""
        from comfyserverless.host.sampling.evaluating import calc_cond_batch

        sides = [self.conds.get(name) for name in ("positive", "negative", "middle")]
        positive, negative, middle = calc_cond_batch(self.inner_model, sides, x, timestep, model_options or {})
        scale, mode = self.guide["scale"], self.guide["mode"]
        if mode == "dual":
            dual: Tensor = negative + (middle - negative) * scale + (positive - middle) * self.cfg
            return dual
        if mode == "dual_nested":
            nested: Tensor = negative + (middle + (positive - middle) * self.cfg - negative) * scale
            return nested
        towards, away = positive - middle, negative - middle
        across = away - (away * towards).sum() / torch.linalg.vector_norm(towards) ** 2 * towards
        guided: Tensor = middle + self.cfg * (towards - across * scale)
        return guided


def guider_of(value: Mapping[str, Any]) -> CFGGuider:
    """Return the object for the GUIDER of a built-in node."""
    guide = value["guide"]
    made = CFGGuider(value["model"]) if guide is None else ThreeSided(value["model"])
    made.set_conds(value["positive"], value["negative"])
    made.set_cfg(value["cfg"])
    if isinstance(made, ThreeSided):
        made.guide = {name: item for name, item in guide.items() if name != "middle"}
        made.inner_set_conds({"middle": guide["middle"]})
    return made


def guider_tree(guider: CFGGuider) -> dict[str, Any] | None:
    """Return the value of a GUIDER; None for one with methods of a pack."""
    return remote.tree_of(guider)
