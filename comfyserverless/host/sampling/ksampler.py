"""Sample as the KSampler node does: levels by a scheduler's name and steps, a sampler by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.samplers import SAMPLER_NAMES, SCHEDULER_NAMES
from comfyserverless.host.sampling.guiders import CFGGuider
from comfyserverless.host.sampling.levels import DISCARDS_PENULTIMATE
from comfyserverless.host.sampling.noise import fix_empty_latent_channels, prepare_noise
from comfyserverless.sampling.sigmas import FULL_STRENGTH

SAMPLER_LIST: list[str] = list(SAMPLER_NAMES)
"""The names that nodes list; packs append to this very list."""

SCHEDULER_LIST: list[str] = list(SCHEDULER_NAMES)
"""The names of schedulers; packs append to this very list."""


class KSampler:
    """A sampler with its levels."""

    SCHEDULERS = SCHEDULER_LIST
    SAMPLERS = SAMPLER_LIST
    DISCARD_PENULTIMATE_SIGMA_SAMPLERS = set(DISCARDS_PENULTIMATE)  # noqa: RUF012  packs add to it

    def __init__(
        self,
        model: Any,
        steps: int,
        device: Any = None,
        sampler: str | None = None,
        scheduler: str | None = None,
        denoise: float | None = None,
        model_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.device = model, device
        self.sampler = sampler if sampler in self.SAMPLERS else self.SAMPLERS[0]
        self.scheduler = scheduler if scheduler in self.SCHEDULERS else self.SCHEDULERS[0]
        self.sigmas: Tensor = torch.zeros(0)
        self.set_steps(steps, denoise)
        self.denoise = denoise
        self.model_options = dict(model_options or {})

    def calculate_sigmas(self, steps: int) -> Tensor:
        """Return the levels of a whole walk."""
        discards = self.sampler in self.DISCARD_PENULTIMATE_SIGMA_SAMPLERS
        process = self.model.get_model_object("model_sampling")
        sigmas = _theirs("calculate_sigmas")(process, self.scheduler, steps + 1 if discards else steps)
        return torch.cat([sigmas[:-2], sigmas[-1:]]) if discards else sigmas

    def set_steps(self, steps: int, denoise: float | None = None) -> None:
        """Choose the levels; less than full strength walks the end of a longer schedule."""
        self.steps = steps
        if denoise is None or denoise > FULL_STRENGTH:
            self.sigmas = self.calculate_sigmas(steps)
        elif denoise <= 0.0:
            self.sigmas = torch.zeros(0)
        else:
            self.sigmas = self.calculate_sigmas(int(steps / denoise))[-(steps + 1) :]

    def sample(
        self,
        noise: Tensor,
        positive: Any,
        negative: Any,
        cfg: float,
        latent_image: Tensor | None = None,
        start_step: int | None = None,
        last_step: int | None = None,
        force_full_denoise: bool = False,
        denoise_mask: Tensor | None = None,
        sigmas: Tensor | None = None,
        callback: Any = None,
        disable_pbar: bool = False,
        seed: int | None = None,
    ) -> Tensor:
        """Return the sample."""
        latent = torch.zeros_like(noise) if latent_image is None else latent_image
        levels = self.sigmas if sigmas is None else sigmas
        if last_step is not None and last_step < len(levels) - 1:
            levels = levels[: last_step + 1].clone()
            if force_full_denoise:
                levels[-1] = 0
        if start_step is not None:
            if start_step >= len(levels) - 1:
                return latent
            levels = levels[start_step:]
        sampler = _theirs("sampler_object")(self.sampler)
        return sample(
            self.model, noise, positive, negative, cfg, self.device, sampler, levels,
            self.model_options, latent_image=latent, denoise_mask=denoise_mask, callback=callback,
            disable_pbar=disable_pbar, seed=seed,
        )  # fmt: skip


def _theirs(name: str) -> Any:
    """Return a function of `comfy.samplers` as it is now: packs put their own in its place."""
    return getattr(import_module("comfy.samplers"), name)


def sample(
    model: Any,
    noise: Tensor,
    positive: Any,
    negative: Any,
    cfg: float,
    device: Any,
    sampler: Any,
    sigmas: Tensor,
    model_options: Mapping[str, Any] | None = None,
    latent_image: Tensor | None = None,
    denoise_mask: Tensor | None = None,
    callback: Any = None,
    disable_pbar: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Return the sample of a sampler object over given levels (`comfy.samplers.sample`)."""
    guider = CFGGuider(model)
    guider.set_conds(positive, negative)
    guider.set_cfg(cfg)
    if model_options:
        guider.model_options = dict(model_options)
    latent = torch.zeros_like(noise) if latent_image is None else latent_image
    return guider.sample(noise, latent, sampler, sigmas, denoise_mask, callback, disable_pbar, seed)


def sample_by_name(
    model: Any,
    noise: Tensor,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Any,
    negative: Any,
    latent_image: Tensor,
    denoise: float = 1.0,
    disable_noise: bool = False,
    start_step: int | None = None,
    last_step: int | None = None,
    force_full_denoise: bool = False,
    noise_mask: Tensor | None = None,
    sigmas: Tensor | None = None,
    callback: Any = None,
    disable_pbar: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Return the sample of a sampler and a scheduler by name (`comfy.sample.sample`)."""
    walker = KSampler(model, steps, model.load_device, sampler_name, scheduler, denoise, model.model_options)
    return walker.sample(
        noise, positive, negative, cfg, latent_image, start_step, last_step, force_full_denoise, noise_mask,
        sigmas, callback, disable_pbar, seed,
    )  # fmt: skip


def sample_custom(
    model: Any,
    noise: Tensor,
    cfg: float,
    sampler: Any,
    sigmas: Tensor,
    positive: Any,
    negative: Any,
    latent_image: Tensor,
    noise_mask: Tensor | None = None,
    callback: Any = None,
    disable_pbar: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Return the sample of a sampler object over given levels (`comfy.sample.sample_custom`)."""
    return sample(
        model, noise, positive, negative, cfg, model.load_device, sampler, sigmas, model.model_options,
        latent_image=latent_image, denoise_mask=noise_mask, callback=callback, disable_pbar=disable_pbar,
        seed=seed,
    )  # fmt: skip


def common_ksampler(
    model: Any,
    seed: int,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Any,
    negative: Any,
    latent: Mapping[str, Any],
    denoise: float = 1.0,
    disable_noise: bool = False,
    start_step: int | None = None,
    last_step: int | None = None,
    force_full_denoise: bool = False,
) -> tuple[dict[str, Any]]:
    """Sample a LATENT (`nodes.common_ksampler`); bit for bit what the KSampler node gives."""
    samples = fix_empty_latent_channels(model, latent["samples"])
    if disable_noise:
        noise = torch.zeros(samples.size(), dtype=samples.dtype, layout=samples.layout, device="cpu")
    else:
        noise = prepare_noise(samples, seed, latent.get("batch_index"))
    callback = import_module("latent_preview").prepare_callback(model, steps)
    samples = import_module("comfy.sample").sample(
        model, noise, steps, cfg, sampler_name, scheduler, positive, negative, samples, denoise=denoise,
        disable_noise=disable_noise, start_step=start_step, last_step=last_step,
        force_full_denoise=force_full_denoise, noise_mask=latent.get("noise_mask"), callback=callback,
        seed=seed,
    )  # fmt: skip
    return ({**latent, "samples": samples},)
