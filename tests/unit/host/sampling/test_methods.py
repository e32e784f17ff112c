"""Keep what a mask keeps, and know samplers of the engine from those of packs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.sampling.methods import KSAMPLER, KSamplerX0Inpaint, sampler_tree
from comfyserverless.host.sampling.spaces import DiscreteEps
from comfyserverless.host.sampling.walking import engine_function

LATENT, NOISE = torch.full((1, 4, 2, 2), 2.0), torch.ones(1, 4, 2, 2)
SIGMAS = torch.tensor([4.0, 1.0, 0.0])
MASK = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).expand(1, 4, 2, 2)


class Guider:
    """Give zeros; remember what it saw."""

    def __init__(self) -> None:
        self.inner_model = SimpleNamespace(model_sampling=DiscreteEps())
        self.seen: list[Tensor] = []

    def __call__(self, x: Tensor, sigma: Tensor, model_options: Any = None, seed: Any = None) -> Tensor:
        self.seen.append(x)
        return torch.zeros_like(x)


def test_model_sees_the_original_at_the_level_where_the_mask_keeps_it() -> None:
    guider = Guider()
    model = KSamplerX0Inpaint(guider, SIGMAS)
    model.latent_image, model.noise = LATENT, NOISE
    out = model(torch.zeros(1, 4, 2, 2), torch.tensor([3.0]), denoise_mask=MASK)
    assert guider.seen[0][0, 0].tolist() == [[0.0, 5.0], [0.0, 5.0]]
    assert out[0, 0].tolist() == [[0.0, 2.0], [0.0, 2.0]]


def test_function_of_a_mask_changes_it_at_each_level() -> None:
    model = KSamplerX0Inpaint(Guider(), SIGMAS)
    model.latent_image, model.noise = LATENT, NOISE
    options = {
        "denoise_mask_function": lambda sigma, mask, extra_options: (
            mask * 0 + (len(extra_options["sigmas"]) > 3)
        )
    }
    out = model(torch.zeros(1, 4, 2, 2), torch.tensor([3.0]), MASK, options)
    assert torch.equal(out, LATENT)


def test_function_of_a_pack_samples_with_its_settings_and_a_callback() -> None:
    told: list[Any] = []

    def own(
        model: Any, x: Tensor, sigmas: Tensor, extra_args: Any, callback: Any, disable: Any, add: float
    ) -> Tensor:
        denoised = model(x, sigmas[0] * x.new_ones([1]), **extra_args)
        callback({"i": 0, "x": x, "denoised": denoised})
        return denoised + add

    sampler = KSAMPLER(own, {"add": 3.0})
    extra = {"model_options": {}, "seed": 1}
    done = sampler.sample(Guider(), SIGMAS, extra, lambda *given: told.append(given), NOISE, LATENT)
    assert torch.equal(done, torch.full_like(LATENT, 3.0))
    assert [(step, total) for step, _, _, total in told] == [(0, 2)]
    assert torch.equal(told[0][2], LATENT + NOISE * 4)
    assert sampler_tree(sampler) is None


def test_sampler_of_the_engine_is_a_value_to_workers() -> None:
    sampler = KSAMPLER(engine_function("lms"), {"order": 2})
    assert sampler_tree(sampler) == {"kind": "SAMPLER", "name": "lms", "options": {"order": 2}}

    class Own(KSAMPLER):
        """Samples in its own way."""

    assert sampler_tree(Own(engine_function("lms"))) is None
