"""Guidance patches by their laws: settings at which they do nothing, and what they hold at others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ModelRef, Patch
from comfyserverless.functions.patching.options import MEMORY
from comfyserverless.functions.patching.subject import subject_of
from tests.support.analytic_models import FACTS, MODEL, AnalyticPool, conditioning
from tests.unit.functions.patching.test_evaluation import after_step, start
from tests.unit.functions.test_denoising import guided, step

PLAIN = after_step(MODEL)


def model_with(name: str, **arguments: Any) -> ModelRef:
    return ModelRef(MODEL.file, patches=(Patch(name, tuple(arguments.items())),))


def changed(name: str, **arguments: Any) -> Tensor:
    return after_step(model_with(name, **arguments))


NOTHING: list[tuple[str, dict[str, Any]]] = [
    ("rescale_cfg", {"multiplier": 0.0}),
    ("apg", {"eta": 1.0, "norm_threshold": 0.0, "momentum": 0.0}),
    ("fresca", {"scale_low": 1.0, "scale_high": 1.0, "freq_cutoff": 1}),
    ("renorm_cfg", {"cfg_trunc": 100.0, "renorm_cfg": 0.0}),
    ("epsilon_scaling", {"scaling_factor": 1.0}),
    ("video_linear_cfg", {"min_cfg": 7.0}),
    ("video_triangle_cfg", {"min_cfg": 7.0}),
    ("pag", {"scale": 0.0}),
    ("latent_operation", {"operation": "sharpen", "sharpen_radius": 1, "sigma": 1.0, "alpha": 0.0}),
]


@pytest.mark.parametrize(("name", "arguments"), NOTHING, ids=[name for name, _ in NOTHING])
def test_setting_that_does_nothing_gives_plain_guidance(name: str, arguments: dict[str, Any]) -> None:
    # What apg guides by comes beside the whole difference of both: that is one more of it.
    expected = after_step(MODEL, cfg=8.0) if name == "apg" else PLAIN
    torch.testing.assert_close(changed(name, **arguments), expected)


@pytest.mark.parametrize(("k", "sigma", "spread"), [(0.5, 0.2, 3.0), (0.5, 1e4, 1.0), (2.0, 1e-12, 1.0)])
def test_a_rescaled_score_leaves_high_levels_and_multiplies_the_noise_by_k_at_low_ones(
    k: float, sigma: float, spread: float
) -> None:
    options = subject_of(model_with("rescale_score", tsr_k=k, tsr_sigma=spread), FACTS).options or {}
    (after,) = options["sampler_post_cfg_function"]
    x, denoised = torch.randn(2, 4, 4, 4), torch.randn(2, 4, 4, 4)
    found = after({"denoised": denoised, "input": x, "sigma": torch.tensor([sigma, sigma])})
    ratio = (spread**2 + sigma**2) / (spread**2 / k + sigma**2)
    torch.testing.assert_close(x - found, (x - denoised) * ratio, atol=1e-4, rtol=1e-4)


SOMETHING: list[tuple[str, dict[str, Any]]] = [
    ("apg", {"eta": 0.5, "norm_threshold": 0.01, "momentum": 0.0}),
    ("cfg_norm", {"strength": 1.0}),
    ("cfg_zero_star", {}),
    ("mahiro", {}),
    ("tcfg", {}),
    ("fresca", {"scale_low": 1.5, "scale_high": 1.0, "freq_cutoff": 1}),
    ("epsilon_scaling", {"scaling_factor": 1.01}),
    ("rescale_score", {"tsr_k": 0.5, "tsr_sigma": 5.0}),
    ("video_linear_cfg", {"min_cfg": 1.0}),
    ("latent_operation", {"operation": "tonemap_reinhard", "multiplier": 1.0}),
    ("model_sampling_discrete", {"sampling": "v_prediction", "zsnr": False}),
    ("model_sampling_discrete", {"sampling": "lcm", "zsnr": False}),
    ("model_sampling_discrete", {"sampling": "x0", "zsnr": True}),
    ("model_sampling_edm", {"sampling": "edm_playground_v2.5", "sigma_max": 80.0, "sigma_min": 0.002}),
    ("model_sampling_edm", {"sampling": "cosmos_rflow", "sigma_max": 80.0, "sigma_min": 0.002}),
    ("model_sampling_v", {"sampling": "v_prediction", "sigma_max": 500.0, "sigma_min": 0.03}),
]


@pytest.mark.parametrize(("name", "arguments"), SOMETHING, ids=[name for name, _ in SOMETHING])
def test_patch_changes_the_step_and_stays_finite(name: str, arguments: dict[str, Any]) -> None:
    found = after_step(model_with(name, **arguments), positive=conditioning(50.0))
    assert torch.isfinite(found).all()
    assert not torch.allclose(found, after_step(MODEL, positive=conditioning(50.0)))


def test_items_of_a_batch_are_guided_by_their_share() -> None:
    linear = changed("video_linear_cfg", min_cfg=1.0)
    assert torch.allclose(linear[0], after_step(MODEL, cfg=1.0)[0])
    assert torch.allclose(linear[1], PLAIN[1])
    triangle = changed("video_triangle_cfg", min_cfg=1.0)
    torch.testing.assert_close(triangle, after_step(MODEL, cfg=1.0))


def test_limited_norms_are_those_of_the_positive_at_most() -> None:
    renormed = changed("renorm_cfg", cfg_trunc=100.0, renorm_cfg=1.0)
    untouched = changed("renorm_cfg", cfg_trunc=0.5, renorm_cfg=1.0)
    torch.testing.assert_close(untouched, after_step(MODEL, cfg=1.0))
    assert not torch.allclose(renormed, untouched)


def test_momentum_is_kept_in_the_state_and_begins_anew_in_each_walk() -> None:
    model = model_with("apg", eta=1.0, norm_threshold=0.0, momentum=0.5)
    pool, call = AnalyticPool(), guided(model=model)
    first = step(pool, start(model), call)["state"]
    second = step(pool, first, call)["state"]
    (kept,) = second["memory"].values()
    assert kept["sigma"] == second["walk"]["sigmas"][1]
    alone = step(pool, {**first, "memory": {}}, call)["state"]
    assert not torch.equal(second["walk"]["x"], alone["walk"]["x"])
    assert torch.equal(step(pool, start(model), call)["state"]["walk"]["x"], first["walk"]["x"])


def test_momentum_is_refused_to_samplers_that_change_the_size() -> None:
    model = model_with("apg", eta=1.0, norm_threshold=0.0, momentum=0.5)
    options = subject_of(model, FACTS).options or {}
    (before,) = options["sampler_pre_cfg_function"]
    memory: dict[str, Any] = {}
    given = {"model_options": {MEMORY: memory}, "cond_scale": 7.0}

    def guide(cells: int) -> None:
        outputs = [torch.ones(1, 4, cells, cells), torch.zeros(1, 4, cells, cells)]
        before({**given, "conds_out": outputs, "sigma": torch.tensor([3.0 / cells])})

    guide(2)
    guide(2)
    with pytest.raises(PromptError, match="from latents of 2 x 2 to 3 x 3 cells; allowed: a momentum of 0"):
        guide(3)


def test_rescaled_velocities_have_the_spread_of_the_positive_s() -> None:
    model = model_with("rescale_cfg", multiplier=1.0)
    guide = (subject_of(model, FACTS).options or {})["sampler_cfg_function"]
    generator = torch.Generator().manual_seed(0)
    x, positive, negative = (torch.randn(2, 4, 6, 6, generator=generator) for _ in range(3))
    sigma = torch.tensor([3.0, 3.0])
    noise = guide({"input": x, "cond": positive, "uncond": negative, "cond_scale": 7.0, "sigma": sigma})
    guided, wanted = (_velocity(x, each, 3.0).std(dim=(1, 2, 3)) for each in (noise, positive))
    torch.testing.assert_close(guided, wanted, rtol=1e-4, atol=1e-4)


def _velocity(x: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Return the velocity of noise at a level, in the view of total variance 1."""
    return (x / (sigma**2 + 1) - (x - noise)) * (sigma**2 + 1) ** 0.5 / sigma
