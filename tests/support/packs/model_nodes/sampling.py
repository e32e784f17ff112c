"""Sample with common_ksampler, plainly and with a patched model."""

from __future__ import annotations

from typing import Any, ClassVar

import comfy.samplers
import latent_preview
import nodes
import torch

_GUIDANCE = {
    "model": ("MODEL",),
    "positive": ("CONDITIONING",),
    "negative": ("CONDITIONING",),
    "latent": ("LATENT",),
    "seed": ("INT", {"default": 0, "min": 0, "max": 2**64 - 1}),
    "steps": ("INT", {"default": 3}),
    "cfg": ("FLOAT", {"default": 7.0}),
    "sampler": (comfy.samplers.KSampler.SAMPLERS,),
    "scheduler": (comfy.samplers.KSampler.SCHEDULERS,),
    "denoise": ("FLOAT", {"default": 1.0}),
}


class Plain:
    """Sample as KSampler does."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("LATENT",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": _GUIDANCE}

    def patched(self, model: Any) -> Any:
        return model

    def run(self, model: Any, **given: Any) -> Any:
        return nodes.common_ksampler(
            self.patched(model), given["seed"], given["steps"], given["cfg"], given["sampler"],
            given["scheduler"], given["positive"], given["negative"], given["latent"], denoise=given["denoise"],
        )  # fmt: skip


class Stepwise(Plain):
    """Sample with a callback of the pack, so that every step is driven in its process."""

    RETURN_TYPES = ("LATENT", "INT")

    def run(self, model: Any, **given: Any) -> Any:
        import comfy.sample

        seen: list[int] = []

        def callback(step: int, x0: torch.Tensor, x: torch.Tensor, total: int) -> None:
            assert x0.shape == x.shape == given["latent"]["samples"].shape
            assert total == given["steps"]
            seen.append(step)

        samples = given["latent"]["samples"]
        noise = comfy.sample.prepare_noise(samples, given["seed"], None)
        samples = comfy.sample.sample(
            model, noise, given["steps"], given["cfg"], given["sampler"], given["scheduler"], given["positive"],
            given["negative"], samples, denoise=given["denoise"], callback=callback, seed=given["seed"],
        )  # fmt: skip
        assert seen == list(range(given["steps"])), seen
        return {**given["latent"], "samples": samples}, len(seen)


class HalvedGuidance(Plain):
    """Sample with guidance that is half as strong as asked for: a closure over a pack's own function."""

    def patched(self, model: Any) -> Any:
        factor = 0.5

        def guide(args: dict[str, Any]) -> Any:
            return args["uncond"] + weigh(args["cond"] - args["uncond"], args["cond_scale"] * factor)

        changed = model.clone()
        changed.set_model_sampler_cfg_function(guide)
        assert "sampler_cfg_function" not in model.model_options
        return changed


def weigh(difference: Any, scale: float) -> Any:
    """Multiply; found by name in this module, which no worker can import."""
    return difference * scale


class ZeroedAttention(Plain):
    """Sample with self-attention of the input blocks replaced by nothing."""

    def patched(self, model: Any) -> Any:
        changed = model.clone()
        for block in (1, 2, 4, 5, 7, 8):
            changed.set_model_attn1_replace(Silence(), "input", block)
        return changed


class Silence:
    """Give zeros for attention."""

    def __call__(self, q: Any, k: Any, v: Any, extra: Any) -> Any:
        return torch.zeros_like(q)


class Perturbed(Plain):
    """Guide away from what the model says without self-attention in its middle, as PAG does."""

    def patched(self, model: Any) -> Any:
        import comfy.model_patcher

        def guide(args: dict[str, Any]) -> Any:
            options = dict(args["model_options"])
            options = comfy.model_patcher.set_model_options_patch_replace(
                options, Silence(), "attn1", "middle", 0
            )
            (weak,) = comfy.samplers.calc_cond_batch(
                args["model"], [args["cond"]], args["input"], args["sigma"], options
            )
            return args["denoised"] + (args["cond_denoised"] - weak) * 2.0

        changed = model.clone()
        changed.set_model_sampler_post_cfg_function(guide)
        return changed


class PerturbedStepwise(Perturbed):
    """The same, where every step is driven in the pack's process."""

    RETURN_TYPES = ("LATENT", "INT")

    def run(self, model: Any, **given: Any) -> Any:
        return Stepwise().run(self.patched(model), **given)


class PatchOnly(HalvedGuidance):
    """Give the patched model out, to be sampled by other nodes."""

    RETURN_TYPES = ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"model": ("MODEL",)}}

    def run(self, model: Any, **given: Any) -> Any:
        return (self.patched(model),)


class Unpicklable(Plain):
    """Put something into a model that cannot travel."""

    def patched(self, model: Any) -> Any:
        import threading

        lock = threading.Lock()

        def locked(args: dict[str, Any]) -> Any:
            with lock:
                return args["denoised"]

        changed = model.clone()
        changed.set_model_sampler_post_cfg_function(locked)
        return changed


class Rescheduled(Plain):
    """Put another noise process into a model."""

    def patched(self, model: Any) -> Any:
        import comfy.model_sampling

        class Process(comfy.model_sampling.ModelSamplingDiscrete, comfy.model_sampling.EPS):
            pass

        process = Process(model.model.model_config)
        process.set_sigmas(process.sigmas.double() * 0.5)
        changed = model.clone()
        changed.add_object_patch("model_sampling", process)
        assert float(changed.get_model_object("model_sampling").sigma_max) < 8
        return changed


PREVIEWS = latent_preview.prepare_callback

NODE_CLASS_MAPPINGS = {
    "ModelsPlain": Plain,
    "ModelsStepwise": Stepwise,
    "ModelsHalvedGuidance": HalvedGuidance,
    "ModelsZeroedAttention": ZeroedAttention,
    "ModelsPatchOnly": PatchOnly,
    "ModelsPerturbed": Perturbed,
    "ModelsPerturbedStepwise": PerturbedStepwise,
    "ModelsUnpicklable": Unpicklable,
    "ModelsRescheduled": Rescheduled,
}
