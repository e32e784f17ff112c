"""A pack in the manner of popular ones: selectors of files and samplers, threads, its own sampler."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import comfy.samplers
import comfy.sd
import folder_paths
import nodes
import torch
from comfy.k_diffusion import sampling

_POOL = ThreadPoolExecutor(2)
_original_sigmas = comfy.samplers.calculate_sigmas


def sample_idioms(
    model: Any, x: Any, sigmas: Any, extra_args: Any = None, callback: Any = None, disable: Any = None
) -> Any:
    """Walk as Euler's method does, with the helpers of k-diffusion."""
    ones = x.new_ones([x.shape[0]])
    for i in sampling.trange(len(sigmas) - 1, disable=disable):
        denoised = model(x, sigmas[i] * ones, **(extra_args or {}))
        x = x + sampling.to_d(x, sigmas[i], denoised) * (sigmas[i + 1] - sigmas[i])
    return x


def calculate_sigmas(model_sampling: Any, scheduler_name: str, steps: int) -> Any:
    """Know one scheduler more."""
    name = "karras" if scheduler_name == "idioms_karras" else scheduler_name
    return _original_sigmas(model_sampling, name, steps)


sampling.sample_idioms = sample_idioms
comfy.samplers.KSampler.SAMPLERS.append("idioms")
comfy.samplers.KSampler.SCHEDULERS.append("idioms_karras")
comfy.samplers.calculate_sigmas = calculate_sigmas


class Selector:
    """Choose a checkpoint, a sampler and a scheduler for other nodes, whose combos they feed."""

    RETURN_TYPES = (
        folder_paths.get_filename_list("checkpoints"),
        comfy.samplers.KSampler.SAMPLERS,
        comfy.samplers.KSampler.SCHEDULERS,
    )
    RETURN_NAMES = ("ckpt_name", "sampler_name", "scheduler")
    FUNCTION = "select"
    CATEGORY = "idioms"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Declare the same lists as inputs."""
        return {
            "required": {
                "ckpt_name": (folder_paths.get_filename_list("checkpoints"),),
                "sampler_name": (comfy.samplers.KSampler.SAMPLERS,),
                "scheduler": (comfy.samplers.KSampler.SCHEDULERS,),
            }
        }

    def select(self, ckpt_name: str, sampler_name: str, scheduler: str) -> tuple[str, str, str]:
        """Give what was chosen."""
        return (ckpt_name, sampler_name, scheduler)


class Threads:
    """Run nodes and ask for folders in threads."""

    RETURN_TYPES = ()
    FUNCTION = "run"
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Take nothing that matters."""
        return {"required": {"size": ("INT", {"default": 16})}}

    def run(self, size: int) -> dict[str, Any]:
        """Tell the sizes that nodes gave, and the folders that threads saw."""
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(folder_paths.get_output_directory()))
        thread.start()
        thread.join()

        def scale(width: int) -> str:
            image = torch.zeros(1, 8, 8, 3)
            scaled = nodes.ImageScale().upscale(image, "bilinear", width, size, "disabled")[0]
            return "x".join(map(str, scaled.shape))

        return {"ui": {"text": [*_POOL.map(scale, (8, 16)), *found]}}


NODE_CLASS_MAPPINGS = {"IdiomsSelector": Selector, "IdiomsThreads": Threads}
