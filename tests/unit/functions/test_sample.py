"""Check how sampling calls begin and end: latents, noise, levels, plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.sampling.noise import starting_noise
from comfyserverless.sampling.parametrization import discrete_parametrization
from tests.support.analytic_models import CONTROL, FACTS, MODEL, AnalyticPool, conditioning

EPSILON = discrete_parametrization("epsilon")
EMPTY = torch.zeros(1, 4, 4, 6)
IMAGE = torch.randn(1, 4, 4, 6, generator=torch.Generator().manual_seed(0)) * 5
HINT = torch.full((1, 32, 48, 3), 0.5)


def begin(**changes: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {
        "model": MODEL,
        "latent": {"samples": EMPTY},
        "positive": conditioning(),
        "negative": conditioning(),
        "applications": [],
        "seed": 5,
        "steps": 4,
        "cfg": 7.0,
        "sampler": "euler",
        "scheduler": "normal",
        "denoise": 1.0,
        "start_step": None,
        "last_step": None,
        "force_full_denoise": False,
        "add_noise": True,
        "guide": None,
        "options": {},
        "sigmas": None,
        "keeps_estimate": False,
        **changes,
    }
    function = FUNCTIONS["sample.begin"]
    return dict(function.execute(function.load_model(inputs, AnalyticPool()), **inputs))


def end(state: dict[str, Any]) -> Tensor:
    function = FUNCTIONS["sample.end"]
    inputs = {"model": MODEL, "state": state}
    samples: Tensor = function.execute(function.load_model(inputs, AnalyticPool()), **inputs)["samples"]
    return samples


def test_walk_from_nothing_starts_from_noise_of_the_whole_variance() -> None:
    walk = begin()["state"]["walk"]
    assert torch.equal(
        walk["x"], starting_noise(EMPTY, 5) * torch.sqrt(1 + torch.tensor(walk["sigmas"][0]) ** 2)
    )


def test_walk_from_an_image_starts_from_it_in_model_units() -> None:
    walk = begin(latent={"samples": IMAGE}, denoise=0.5, add_noise=False)["state"]["walk"]
    assert torch.equal(walk["x"], IMAGE * FACTS.scale_factor)
    assert walk["sigmas"][0] < EPSILON.sigma_max / 2


def test_batch_index_gives_items_the_noise_of_their_place() -> None:
    x = begin(latent={"samples": EMPTY, "batch_index": [2]})["state"]["walk"]["x"]
    whole = begin(latent={"samples": EMPTY.expand(3, -1, -1, -1), "batch_index": [0, 1, 2]})["state"]["walk"][
        "x"
    ]
    assert torch.equal(x, whole[2:])


def test_empty_latent_gets_the_channels_of_the_model() -> None:
    assert begin(latent={"samples": torch.zeros(2, 16, 4, 6)})["state"]["walk"]["x"].shape == (2, 4, 4, 6)


def test_latent_of_another_family_is_refused() -> None:
    with pytest.raises(PromptError, match="16 channels, but the model takes 4"):
        begin(latent={"samples": torch.ones(1, 16, 4, 6)})


@pytest.mark.parametrize("nothing", [{"denoise": 0.0}, {"start_step": 4}, {"start_step": 2, "last_step": 2}])
def test_walk_without_steps_gives_the_latent_back(nothing: dict[str, Any]) -> None:
    begun = begin(latent={"samples": IMAGE}, **nothing)
    assert begun["plan"] == {
        "steps": 0,
        "maximum": 0,
        "is_dynamic": False,
        "shape": [],
        "evaluations": [],
    }
    assert torch.equal(end(begun["state"]), IMAGE)


@pytest.mark.parametrize("sampler", ["euler", "uni_pc", "dpm_adaptive", "dpmpp_2m_sde"])
def test_walk_of_one_level_noises_the_latent_to_it(sampler: str) -> None:
    begun = begin(latent={"samples": IMAGE}, sampler=sampler, sigmas=torch.tensor([2.5]))
    assert begun["plan"]["steps"] == 0
    expected = IMAGE + starting_noise(IMAGE, 5) * 2.5 / FACTS.scale_factor
    torch.testing.assert_close(end(begun["state"]), expected)


def test_walk_of_one_level_at_the_clean_end_gives_the_latent_back() -> None:
    begun = begin(latent={"samples": IMAGE}, sigmas=torch.tensor([0.0]))
    torch.testing.assert_close(end(begun["state"]), IMAGE)


def test_scheduler_without_levels_is_refused() -> None:
    with pytest.raises(PromptError, match="'kl_optimal' finds no levels"):
        begin(scheduler="kl_optimal", steps=1, sampler="dpmpp_2m_sde")


def test_plan_lists_one_evaluation_per_model_call() -> None:
    plan = begin(sampler="heun", steps=2)["plan"]
    assert plan["steps"] == 2
    assert [(e["step"], e["last_of_step"]) for e in plan["evaluations"]] == [(0, False), (0, True), (1, True)]


def test_plan_names_the_controls_in_range_of_each_level() -> None:
    early = {"control_net": CONTROL, "hint": HINT, "strength": 1.0, "start_percent": 0.0, "end_percent": 0.4}
    late = {**early, "start_percent": 0.6, "end_percent": 1.0}
    positive = conditioning(control=[early, late])
    plan = begin(positive=positive, negative=positive, applications=[early, late])["plan"]
    assert [e["controls"] for e in plan["evaluations"]] == [[0], [0], [1], [1]]


def test_plan_leaves_out_controls_of_a_negative_that_is_not_evaluated() -> None:
    only = {"control_net": CONTROL, "hint": HINT, "strength": 1.0, "start_percent": 0.0, "end_percent": 1.0}
    changes = {"negative": conditioning(control=[only]), "applications": [only]}
    assert all(e["controls"] == [] for e in begin(cfg=1.0, **changes)["plan"]["evaluations"])
    assert all(e["controls"] == [0] for e in begin(cfg=2.0, **changes)["plan"]["evaluations"])


def test_end_gives_output_units() -> None:
    state = begin(latent={"samples": IMAGE}, add_noise=False, denoise=0.5)["state"]
    torch.testing.assert_close(end(state), IMAGE)


def test_mask_is_resized_to_the_latent() -> None:
    mask = torch.zeros(1, 32, 48)
    mask[:, :, 24:] = 1
    state = begin(latent={"samples": IMAGE, "noise_mask": mask})["state"]
    assert torch.equal(state["mask"]["mask"][0, 0, 0], torch.tensor([0.0, 0, 0, 1, 1, 1]))
    assert torch.equal(state["mask"]["noise"], starting_noise(IMAGE, 5))


def test_ddim_keeps_masked_parts_with_fresh_noise() -> None:
    latent = {"samples": IMAGE, "noise_mask": torch.ones(1, 32, 48)}
    state = begin(latent=latent, sampler="ddim")["state"]
    assert torch.equal(state["mask"]["noise"], starting_noise(IMAGE, 6))


def test_options_by_percent_reach_the_sampler_as_levels_of_the_model() -> None:
    walk = begin(sampler="sa_solver")["state"]["walk"]
    levels = [EPSILON.percent_to_sigma(share) for share in (0.2, 0.8)]
    assert [walk["start_sigma"], walk["end_sigma"]] == levels


def test_plan_of_a_sampler_that_needs_the_negative_has_its_controls_at_scale_one() -> None:
    only = {"control_net": CONTROL, "hint": HINT, "strength": 1.0, "start_percent": 0.0, "end_percent": 1.0}
    changes = {"negative": conditioning(control=[only]), "applications": [only], "sampler": "euler_cfg_pp"}
    assert all(e["controls"] == [0] for e in begin(cfg=1.0, **changes)["plan"]["evaluations"])


def test_progress_of_a_sampler_with_steps_of_its_own_counts_to_the_steps_asked_for() -> None:
    plan = begin(sampler="dpm_fast", steps=8)["plan"]
    assert (plan["steps"], plan["maximum"], len(plan["evaluations"])) == (3, 8, 8)


def test_given_levels_are_walked() -> None:
    begun = begin(sigmas=torch.tensor([5.0, 2.0, 0.5]), scheduler="", steps=0)
    assert begun["state"]["walk"]["sigmas"] == [5.0, 2.0, 0.5]
    assert [each["step"] for each in begun["plan"]["evaluations"]] == [0, 1]


def test_settings_of_the_sampler_reach_it_and_shares_become_levels() -> None:
    options = {"eta": 0.25, "predictor_order": 2, "shares": {"start_sigma": 0.5}}
    walk = begin(sampler="sa_solver", options=options)["state"]["walk"]
    assert (walk["eta"], walk["predictor_order"]) == (0.25, 2)
    assert walk["start_sigma"] == EPSILON.percent_to_sigma(0.5)
    assert walk["end_sigma"] == EPSILON.percent_to_sigma(0.8)
