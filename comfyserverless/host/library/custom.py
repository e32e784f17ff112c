"""Run the nodes of custom sampling here: their NOISE, SAMPLER and GUIDER may be objects of packs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch

from comfyserverless.host.library.classes import BuiltinNode, Result
from comfyserverless.host.sampling.guiders import CFGGuider
from comfyserverless.host.sampling.ksampler import KSampler, common_ksampler
from comfyserverless.host.sampling.methods import sampler_object
from comfyserverless.host.sampling.noise import EmptyNoise, RandomNoise, fix_empty_latent_channels


class RandomNoiseNode(BuiltinNode):
    """NOISE of a seed."""

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return the object."""
        return Result((RandomNoise(cls.bound(args, kwargs)["noise_seed"]),))


class DisableNoiseNode(BuiltinNode):
    """No NOISE."""

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return the object."""
        return Result((EmptyNoise(),))


class SamplerSelectNode(BuiltinNode):
    """A SAMPLER by name, of ours or of a pack."""

    RETURN_TYPES = ("SAMPLER",)

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return the object."""
        return Result((sampler_object(cls.bound(args, kwargs)["sampler_name"]),))


class BasicGuider(CFGGuider):
    """Follow one conditioning."""

    def set_conds(self, positive: Any, negative: Any = None) -> None:
        """Take the conditioning."""
        self.inner_set_conds({"positive": positive})


class BasicGuiderNode(BuiltinNode):
    """A GUIDER with one side."""

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return the object."""
        given = cls.bound(args, kwargs)
        guider = BasicGuider(given["model"])
        guider.set_conds(given["conditioning"])
        return Result((guider,))


class CfgGuiderNode(BuiltinNode):
    """A GUIDER with two sides."""

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return the object."""
        given = cls.bound(args, kwargs)
        guider = CFGGuider(given["model"])
        guider.set_conds(given["positive"], given["negative"])
        guider.set_cfg(given["cfg"])
        return Result((guider,))


class SampleNode(BuiltinNode):
    """Sample with noise, guider and sampler as objects."""

    RETURN_TYPES = ("LATENT", "LATENT")

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return (LATENT, LATENT of the last estimate)."""
        given = cls.bound(args, kwargs)
        return _sample(
            given["noise"], given["guider"], given["sampler"], given["sigmas"], given["latent_image"]
        )


class SampleWithCfgNode(BuiltinNode):
    """Sample with a seed and a scale."""

    RETURN_TYPES = ("LATENT", "LATENT")

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return (LATENT, LATENT of the last estimate)."""
        given = cls.bound(args, kwargs)
        guider = CFGGuider(given["model"])
        guider.set_conds(given["positive"], given["negative"])
        guider.set_cfg(given["cfg"])
        noise: Any = RandomNoise(given["noise_seed"])
        if not given["add_noise"]:
            noise = EmptyNoise()
            noise.seed = given["noise_seed"]
        return _sample(noise, guider, given["sampler"], given["sigmas"], given["latent_image"])


class KSamplerNode(BuiltinNode):
    """Sample by the names of a sampler and a scheduler, of ours or of packs."""

    RETURN_TYPES = ("LATENT",)

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return (LATENT,)."""
        given = cls.bound(args, kwargs)
        return _by_names(given, given["seed"], denoise=given.get("denoise", 1.0))


class KSamplerAdvancedNode(BuiltinNode):
    """Sample a range of steps."""

    RETURN_TYPES = ("LATENT",)

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return (LATENT,)."""
        given = cls.bound(args, kwargs)
        return _by_names(
            given,
            given["noise_seed"],
            disable_noise=given["add_noise"] == "disable",
            start_step=given["start_at_step"],
            last_step=given["end_at_step"],
            force_full_denoise=given["return_with_leftover_noise"] != "enable",
        )


class SchedulerNode(BuiltinNode):
    """SIGMAS by the name of a scheduler, of ours or of packs."""

    RETURN_TYPES = ("SIGMAS",)

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Return (SIGMAS,)."""
        given = cls.bound(args, kwargs)
        model, steps, scheduler = given["model"], given["steps"], given["scheduler"]
        made = KSampler(model, steps, None, "euler", scheduler, given.get("denoise", 1.0))
        return Result((made.sigmas,))


_NAMED = ("steps", "cfg", "sampler_name", "scheduler", "positive", "negative", "latent_image")


def _by_names(given: Mapping[str, Any], seed: int, **how: Any) -> Result:
    """Sample; how: keywords of common_ksampler."""
    settings: list[Any] = [given["model"], seed, *(given[name] for name in _NAMED)]
    return Result(common_ksampler(*settings, **how))


def _sample(noise: Any, guider: Any, sampler: Any, sigmas: Any, latent_image: Mapping[str, Any]) -> Result:
    latent = dict(latent_image)
    latent["samples"] = fix_empty_latent_channels(guider.model_patcher, latent["samples"])
    kept: dict[str, Any] = {}
    callback = import_module("latent_preview").prepare_callback(
        guider.model_patcher, sigmas.shape[-1] - 1, kept
    )
    samples = guider.sample(
        noise.generate_noise(latent),
        latent["samples"],
        sampler,
        sigmas,
        denoise_mask=latent.get("noise_mask"),
        callback=callback,
        disable_pbar=True,
        seed=noise.seed,
    )
    out = {**latent, "samples": samples.to(torch.device("cpu"))}
    if "x0" not in kept:
        return Result((out, out))
    model = guider.model_patcher.model
    return Result((out, {**latent, "samples": model.process_latent_out(kept["x0"].cpu())}))


LOCAL: Mapping[str, type] = {
    "RandomNoise": RandomNoiseNode,
    "DisableNoise": DisableNoiseNode,
    "KSamplerSelect": SamplerSelectNode,
    "BasicGuider": BasicGuiderNode,
    "CFGGuider": CfgGuiderNode,
    "SamplerCustom": SampleWithCfgNode,
    "SamplerCustomAdvanced": SampleNode,
    "KSampler": KSamplerNode,
    "KSamplerAdvanced": KSamplerAdvancedNode,
    "BasicScheduler": SchedulerNode,
}
"""Classes that run in this process, by name."""
