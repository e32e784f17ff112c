"""Check the steps of a walk: guidance, controls, single evaluations, previews, masks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from comfyserverless.core.errors import InvariantError, PromptError
from comfyserverless.core.values import ModelRef, Patch
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.sampling.samplers.registry import SAMPLERS
from tests.support.analytic_models import (
    CONTROL,
    FACTS,
    MODEL,
    AnalyticControlNet,
    AnalyticDiffusion,
    AnalyticPool,
    conditioning,
)
from tests.unit.functions.test_sample import HINT, IMAGE, begin, end

Call = dict[str, Any]


def guided(**changes: Any) -> Call:
    return {
        "model": MODEL,
        "positive": conditioning(1.0),
        "negative": conditioning(0.5),
        "cfg": 7.0,
        "applications": [],
        "guide": None,
        **changes,
    }


def step(pool: AnalyticPool, state: dict[str, Any], call: Call, **changes: Any) -> dict[str, Any]:
    function = FUNCTIONS["denoise.step"]
    extra = {"residuals": [], "uncond": None, "single_evaluation": False, "preview": None, **changes}
    inputs = {**call, "state": state, **extra}
    return dict(function.execute(function.load_model(inputs, pool), **inputs))


def control(
    pool: AnalyticPool, state: dict[str, Any], call: Call, index: int, branch: str = "both"
) -> dict[str, list[Tensor]]:
    function = FUNCTIONS["controlnet.run"]
    inputs = {**call, "state": state, "control_net": CONTROL, "application": index, "branch": branch}
    residuals: dict[str, list[Tensor]] = function.execute(function.load_model(inputs, pool), **inputs)[
        "residuals"
    ].collect()
    return residuals


def application(strength: float = 1.0, hint: Tensor = HINT) -> dict[str, Any]:
    return {
        "control_net": CONTROL,
        "hint": hint,
        "strength": strength,
        "start_percent": 0.0,
        "end_percent": 1.0,
    }


@pytest.mark.parametrize("name", sorted(name for name in SAMPLERS if not SAMPLERS[name].is_dynamic))
def test_single_evaluations_that_move_equal_whole_steps(name: str) -> None:
    pool, call = AnalyticPool(), guided()
    begun = begin(
        sampler=name, latent={"samples": IMAGE}, steps=5, **{k: call[k] for k in ("positive", "negative")}
    )
    whole = single = begun["state"]
    for _ in range(begun["plan"]["steps"]):
        whole = step(pool, whole, call)["state"]
    for _ in begun["plan"]["evaluations"]:
        single = step(pool, pickle.loads(pickle.dumps(single)), call, single_evaluation=True)["state"]
    assert torch.equal(end(whole), end(single))


def test_step_changes_none_of_its_inputs() -> None:
    pool, call = AnalyticPool(), guided()
    state = begin(latent={"samples": IMAGE, "noise_mask": torch.ones(1, 8, 8)}, sampler="dpmpp_2m")["state"]
    before = pickle.dumps((state, call))
    step(pool, state, call)
    assert pickle.dumps((state, call)) == before


def test_positive_and_negative_share_a_call_at_the_rounded_timestep() -> None:
    pool = AnalyticPool()
    step(pool, begin()["state"], guided())
    ((x_in, timesteps, context),) = pool.model.calls
    assert x_in.shape == (2, 4, 4, 6)
    assert timesteps.tolist() == [999.0, 999.0]
    assert context[:, 0, 0].tolist() == [0.5, 1.0]


def test_control_acts_with_its_strength_in_its_chain() -> None:
    pool = AnalyticPool()
    chain = [application(2.0), application(1.0, HINT / 5)]
    call = guided(
        positive=conditioning(1.0, control=chain), negative=conditioning(1.0, control=chain), applications=chain
    )
    state = begin(positive=call["positive"], negative=call["negative"], applications=chain)["state"]
    residuals = [control(pool, state, call, index) for index in (0, 1)]
    assert [float(part["0"][0].mean()) for part in residuals] == pytest.approx([1.0, 0.1])
    plain = step(pool, state, call, residuals=[None, None], single_evaluation=True)["state"]["walk"]
    added = step(pool, state, call, residuals=residuals, single_evaluation=True)["state"]["walk"]
    dt = float(state["walk"]["sigmas"][1] - state["walk"]["sigmas"][0])
    torch.testing.assert_close(
        added["x"] - plain["x"], torch.full_like(plain["x"], 1.1 * dt), atol=1e-4, rtol=1e-4
    )


def test_control_of_one_side_acts_on_its_own_batch_only() -> None:
    pool, chain = AnalyticPool(), [application()]
    call = guided(positive=conditioning(1.0, control=chain), applications=chain)
    residuals = control(pool, begin()["state"], call, 0)
    assert list(residuals) == ["0"]
    assert residuals["0"][0].shape == (1, 4, 4, 6)


def test_hints_of_a_batch_go_to_their_items() -> None:
    pool = AnalyticPool()
    chain = [application(hint=torch.cat([HINT, HINT * 2]))]
    both = conditioning(1.0, control=chain)
    call = guided(positive=both, negative=both, applications=chain)
    state = begin(latent={"samples": torch.zeros(3, 4, 4, 6)})["state"]
    (residual,) = control(pool, state, call, 0)["0"]
    assert residual[:, 0, 0, 0].tolist() == pytest.approx([0.5, 1.0, 0.5] * 2)


class Unreadable(list[Tensor]):
    """Residuals that have a length, and must not be read."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("read too early")


class Blind(AnalyticDiffusion):
    """Take residuals without reading them."""

    def predict(self, x_in: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.zeros_like(x_in)


def test_residuals_are_read_by_nobody_but_the_model() -> None:
    pool, chain = AnalyticPool(), [application(), application(0.5)]
    both = conditioning(1.0, control=chain)
    call = guided(positive=both, negative=both, applications=chain)
    pool.model = Blind()
    lazy = [{"0": Unreadable([torch.ones(1)])}, {"0": Unreadable([torch.ones(1)])}]
    assert (
        step(pool, begin()["state"], call, residuals=lazy, single_evaluation=True)["state"]["walk"]["step"] == 1
    )


def test_residuals_for_a_step_of_several_evaluations_are_refused() -> None:
    pool, chain = AnalyticPool(), [application()]
    call = guided(positive=conditioning(1.0, control=chain), applications=chain)
    state = begin(sampler="heun")["state"]
    with pytest.raises(InvariantError, match="several evaluations"):
        step(pool, state, call, residuals=[control(pool, state, call, 0)])


def test_preview_is_a_jpeg_of_the_latents_shape() -> None:
    shown = step(AnalyticPool(), begin()["state"], guided(), preview={"size_px": 300, "decoders": None})[
        "preview"
    ]
    image = Image.open(io.BytesIO(shown.make()))
    assert (image.format, image.size) == ("JPEG", (300, 200))


def test_no_preview_unless_asked() -> None:
    assert step(AnalyticPool(), begin()["state"], guided())["preview"] is None


def test_kept_part_of_a_mask_stays_the_original() -> None:
    pool, call = AnalyticPool(), guided()
    mask = torch.zeros(1, 4, 6)
    mask[:, :, 3:] = 1
    begun = begin(latent={"samples": IMAGE, "noise_mask": mask})
    state = begun["state"]
    for _ in range(begun["plan"]["steps"]):
        state = step(pool, state, call)["state"]
    torch.testing.assert_close(end(state)[..., :3], IMAGE[..., :3])
    assert not torch.allclose(end(state)[..., 3:], IMAGE[..., 3:], atol=0.1)


def test_cfg_pp_evaluates_the_negative_at_scale_one_and_walks_with_it() -> None:
    pool, call = AnalyticPool(), guided(cfg=1.0)
    walks = [
        step(pool, begin(sampler=name, cfg=1.0)["state"], call)["state"]["walk"]["x"]
        for name in ("euler", "euler_cfg_pp")
    ]
    assert [x_in.shape[0] for x_in, _, _ in pool.model.calls] == [1, 2]
    assert not torch.allclose(*walks, atol=1e-4)


def test_kept_part_of_a_mask_stays_the_original_with_cfg_pp() -> None:
    pool, call = AnalyticPool(), guided()
    mask = torch.zeros(1, 4, 6)
    mask[:, :, 3:] = 1
    begun = begin(sampler="euler_cfg_pp", latent={"samples": IMAGE, "noise_mask": mask})
    state = begun["state"]
    for _ in range(begun["plan"]["steps"]):
        state = step(pool, state, call)["state"]
    torch.testing.assert_close(end(state)[..., :3], IMAGE[..., :3])


@pytest.mark.parametrize("is_single", [False, True])
def test_dynamic_walk_tells_what_is_upcoming_until_it_ends(is_single: bool) -> None:
    pool, call = AnalyticPool(), guided()
    begun = begin(sampler="dpm_adaptive", latent={"samples": IMAGE}, steps=5)
    state, upcoming = begun["state"], begun["plan"]["evaluations"][0]
    assert begun["plan"]["is_dynamic"]
    assert upcoming == {"step": 0, "last_of_step": False, "controls": [], "branches": [[], []]}
    seen = []
    while upcoming is not None:
        seen.append(upcoming["last_of_step"])
        taken = step(pool, state, call, single_evaluation=is_single)
        state, upcoming = pickle.loads(pickle.dumps(taken["state"])), taken["upcoming"]
    evaluations = 3 * state["walk"]["step"]
    assert len(pool.model.calls) == evaluations
    assert seen == ([False, False, True] * (evaluations // 3) if is_single else [False] * (evaluations // 3))


def test_dynamic_walk_tells_the_controls_in_range_of_each_level() -> None:
    pool = AnalyticPool()
    early = [application() | {"end_percent": 0.4}]
    call = guided(positive=conditioning(1.0, control=early), applications=early)
    begun = begin(sampler="dpm_adaptive", positive=call["positive"], applications=early)
    state, upcoming, seen = begun["state"], begun["plan"]["evaluations"][0], []
    while upcoming is not None:
        seen.append(upcoming["controls"])
        residuals = [control(pool, state, call, 0) if upcoming["controls"] else None]
        taken = step(pool, state, call, residuals=residuals, single_evaluation=True)
        state, upcoming = taken["state"], taken["upcoming"]
    assert seen[0] == [0]
    assert seen[-1] == []


def test_other_walks_tell_of_nothing_upcoming() -> None:
    assert step(AnalyticPool(), begin()["state"], guided())["upcoming"] is None


HALF = torch.cat((torch.zeros(1, 32, 24), torch.ones(1, 32, 24)), dim=2)


def walk_masked(name: str, mask: Tensor = HALF, **changes: Any) -> dict[str, Any]:
    """Walk a masked image to its end and return the state there."""
    pool, call = AnalyticPool(), guided()
    sides = {side: call[side] for side in ("positive", "negative")}
    begun = begin(sampler=name, latent={"samples": IMAGE, "noise_mask": mask}, steps=4, **sides, **changes)
    state = begun["state"]
    if begun["plan"]["is_dynamic"]:
        upcoming = begun["plan"]["evaluations"]
        while upcoming:
            out = step(pool, state, call)
            state, upcoming = out["state"], out["upcoming"]
    else:
        for _ in range(begun["plan"]["steps"]):
            state = step(pool, state, call)["state"]
    return dict(state)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_what_a_mask_keeps_is_the_original_and_the_rest_is_not(name: str) -> None:
    state = walk_masked(name)
    samples = end(state)
    kept, sampled = (samples - IMAGE)[..., :3].abs(), (samples - IMAGE)[..., 3:].abs()
    if SAMPLERS[name].ends_above_zero:
        assert 0 < kept.max() < 1.0  # the last level of the walk, times noise, in output units
    else:
        assert torch.equal(samples[..., :3], IMAGE[..., :3])
        walked = end({key: part for key, part in state.items() if key != "original"})
        torch.testing.assert_close(walked[..., :3], IMAGE[..., :3], atol=1e-3, rtol=0)
    assert sampled.mean() > 0.5


def test_kept_part_still_carries_its_noise_where_the_walk_ends_early() -> None:
    samples = end(walk_masked("euler", start_step=0, last_step=2))
    assert (samples - IMAGE)[..., :3].abs().mean() > 1.0


def test_cells_that_change_later_stay_nearer_to_the_original() -> None:
    model = ModelRef(MODEL.file, patches=(Patch("differential_diffusion", (("strength", 1.0),)),))
    mask = torch.tensor([0.9, 0.9, 0.5, 0.5, 0.1, 0.1]).repeat_interleave(8).expand(1, 32, 48)
    changed = end(walk_masked("euler", mask, model=model))
    away = (changed - IMAGE).abs().mean(dim=(0, 1, 2))
    assert away[:2].mean() > away[4:].mean() > 0
    assert not torch.equal(changed, end(walk_masked("euler", mask)))


def negative(pool: AnalyticPool, state: dict[str, Any], call: Call, residuals: list[Any]) -> dict[str, Any]:
    """Evaluate the negative branch apart, and return what the step is given."""
    function = FUNCTIONS["denoise.negative"]
    inputs = {**call, "state": state, "residuals": residuals}
    made: dict[str, Any] = function.execute(function.load_model(inputs, pool), **inputs)["uncond"].collect()
    return made


def split_step(pool: AnalyticPool, state: dict[str, Any], call: Call, residuals: list[Any]) -> dict[str, Any]:
    """Take one evaluation whose branches are apart."""
    uncond = negative(pool, state, call, residuals)
    return step(pool, state, call, residuals=residuals, uncond=uncond, single_evaluation=True)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_walk_whose_branches_are_apart_ends_where_the_others_do(name: str) -> None:
    pool, call = AnalyticPool(), guided()
    sides = {side: call[side] for side in ("positive", "negative")}
    begun = begin(sampler=name, latent={"samples": IMAGE}, steps=4, **sides)
    together = apart = begun["state"]
    coming = list(begun["plan"]["evaluations"])
    while coming:
        assert coming.pop(0)["branches"] == [[], []]
        taken = step(pool, together, call, single_evaluation=True)
        together = taken["state"]
        apart = split_step(pool, pickle.loads(pickle.dumps(apart)), call, [])["state"]
        coming += [] if taken["upcoming"] is None else [taken["upcoming"]]
    torch.testing.assert_close(end(apart), end(together), atol=1e-4, rtol=1e-4)


def test_branches_apart_are_calls_of_one_entry_each() -> None:
    pool = AnalyticPool()
    split_step(pool, begin()["state"], guided(), [])
    assert [(x_in.shape[0], float(context[0, 0, 0])) for x_in, _, context in pool.model.calls] == [
        (1, 0.5),
        (1, 1.0),
    ]


def test_each_branch_takes_the_residuals_that_were_made_for_it() -> None:
    pool, chain = AnalyticPool(), [application()]
    call = guided(negative=conditioning(0.5, control=chain), applications=chain, cfg=2.0)
    state = begin(**{side: call[side] for side in ("positive", "negative", "applications")})["state"]
    assert control(pool, state, call, 0, "positive") == {}
    made = control(pool, state, call, 0, "negative")
    assert made["0"][0].shape == (1, 4, 4, 6)
    plain = negative(pool, state, call, [None])["denoised"][0]
    added = negative(pool, state, call, [made])["denoised"][0]
    torch.testing.assert_close(plain - added, torch.full_like(plain, 0.5 * state["walk"]["sigmas"][0]))


def test_negative_that_was_made_elsewhere_is_read_after_the_positive_was_evaluated() -> None:
    pool = AnalyticPool()

    class Late(dict[str, list[Tensor]]):
        def __getitem__(self, key: str) -> list[Tensor]:
            assert len(pool.model.calls) == 1
            return super().__getitem__(key)

    state, call = begin()["state"], guided()
    uncond = Late(negative(AnalyticPool(), state, call, []))
    assert step(pool, state, call, uncond=uncond, single_evaluation=True)["state"]["walk"]["step"] == 1


def test_negative_of_one_evaluation_is_refused_for_a_step_of_several() -> None:
    pool, call, state = AnalyticPool(), guided(), begin(sampler="heun")["state"]
    with pytest.raises(InvariantError, match="several evaluations"):
        step(pool, state, call, uncond=negative(pool, state, call, []))


def test_weighing_evaluates_both_branches_together_and_one_alone() -> None:
    pool, function = AnalyticPool(), FUNCTIONS["denoise.weigh"]
    inputs = {**guided(), "state": begin()["state"]}
    seconds = function.execute(function.load_model(inputs, pool), **inputs)
    assert [x_in.shape[0] for x_in, _, _ in pool.model.calls] == [2, 2, 1, 2, 1, 2, 1]
    assert pool.model.calls[-1][2][0, 0, 0] == 1.0, "the positive's"
    assert seconds.keys() == {"batched_s", "branch_s"}
    assert all(each > 0 for each in seconds.values())


def test_estimate_is_that_of_the_first_evaluation_of_the_last_step() -> None:
    pool, call = AnalyticPool(), guided()
    begun = begin(sampler="heun", steps=3, latent={"samples": IMAGE}, keeps_estimate=True)
    state = begun["state"]
    for _ in range(2):
        state = step(pool, state, call)["state"]
    once = step(pool, state, call, single_evaluation=True)["state"]
    assert once["estimate"]["step"] == 2
    function = FUNCTIONS["sample.end"]
    inputs = {"model": MODEL, "state": step(pool, state, call)["state"]}
    made = function.execute(function.load_model(inputs, pool), **inputs)
    assert torch.equal(made["estimate"], once["estimate"]["x"].float() / FACTS.scale_factor)
    assert begin(latent={"samples": IMAGE})["state"].get("estimate") is None


def test_a_middle_side_is_evaluated_and_guides() -> None:
    pool = AnalyticPool()
    guide = {"mode": "dual", "middle": conditioning(3.0), "scale": 2.0}
    call = guided(guide=guide)
    step(pool, begin(guide=guide)["state"], call)
    ((_, _, context),) = pool.model.calls
    assert context[:, 0, 0].tolist() == [1.0, 3.0, 0.5]


class WideDiffusion(AnalyticDiffusion):
    """Predict noise from the first channels; the others are for a test to look at."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.facts = replace(FACTS, in_channels=in_channels)

    def predict(self, x_in: Tensor, *inputs: Any, **named: Any) -> Tensor:
        self.seen = x_in
        return super().predict(x_in[:, :4], *inputs, **named)


def test_an_inpainting_model_sees_the_mask_and_the_kept_part_of_each_entry() -> None:
    pool = AnalyticPool()
    pool.model = model = WideDiffusion(9)
    mask = torch.zeros(1, 1, 32, 32)
    mask[..., :16, :] = 1
    kept = torch.ones(1, 4, 4, 4)
    text = [
        [cond, {**options, "concat_mask": mask, "concat_latent_image": kept}]
        for cond, options in conditioning(1.0)
    ]
    call = guided(positive=text)
    state = begin(latent={"samples": torch.zeros(1, 4, 4, 4)})["state"]
    result = step(pool, state, call)
    assert model.seen.shape == (2, 9, 4, 4)
    negative, positive = model.seen[:, 4:]
    assert torch.equal(negative[0], torch.ones(4, 4))
    assert torch.allclose(negative[1:, 0, 0], torch.tensor([0.8223, -0.6876, 0.6364, 0.1380]))
    assert torch.equal(positive[0], mask[0, 0, ::8, ::8])
    assert torch.allclose(positive[1:], kept[0] * FACTS.scale_factor)
    plain = step(AnalyticPool(), state, guided())
    assert torch.equal(result["state"]["walk"]["x"], plain["state"]["walk"]["x"])


@pytest.mark.parametrize(
    ("process", "scale"),
    [
        (None, 1.0),
        (
            Patch(
                "model_sampling_edm", (("sampling", "v_prediction"), ("sigma_max", 80.0), ("sigma_min", 0.01))
            ),
            FACTS.scale_factor,
        ),
    ],
)
def test_an_editing_model_sees_the_picture_of_each_entry_in_the_units_of_its_kind(
    process: Patch | None, scale: float
) -> None:
    pool = AnalyticPool()
    pool.model = model = WideDiffusion(8)
    model.facts = replace(model.facts, process=process)
    text = [[cond, {"concat_latent_image": torch.ones(1, 4, 4, 4)}] for cond, _ in conditioning(1.0)]
    step(pool, begin(latent={"samples": torch.zeros(1, 4, 4, 4)})["state"], guided(positive=text))
    negative, positive = model.seen[:, 4:]
    assert torch.equal(negative, torch.zeros(4, 4, 4))
    assert torch.allclose(positive, torch.full((4, 4, 4), scale))


class ToldDiffusion(AnalyticDiffusion):
    """Remember what kind of prompt each vector condition was made for."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def adm(
        self, pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
    ) -> Tensor | None:
        self.told.append(options["prompt_type"])
        return torch.zeros(1, 1)


@pytest.mark.parametrize("patches", [(), (Patch("rescale_cfg", (("multiplier", 0.5),)),)])
@pytest.mark.parametrize("mode", ["dual", "perp_neg"])
def test_a_vector_condition_is_told_which_sides_are_not_wanted(mode: str, patches: tuple[Patch, ...]) -> None:
    pool = AnalyticPool()
    pool.model = model = ToldDiffusion()
    guide = {"mode": mode, "middle": conditioning(3.0), "scale": 2.0}
    call = guided(guide=guide, model=ModelRef(MODEL.file, patches=patches))
    step(pool, begin(guide=guide)["state"], call)
    assert sorted(map(str, model.told)) == ["negative", "negative", "positive"]
    model.told.clear()
    own = conditioning(1.0, prompt_type="negative")
    step(pool, begin(guide=guide)["state"], {**call, "positive": own})
    assert model.told == ["negative"] * 3


UPSCALE = {"upscale": {"ratio": 1.5, "steps": 1, "method": "bicubic"}}


def test_a_latent_that_grows_is_evaluated_shown_and_given_out_in_its_new_size() -> None:
    pool, latent = AnalyticPool(), {"samples": torch.zeros(1, 4, 4, 4)}
    state = begin(sampler="lcm", steps=2, latent=latent, options=UPSCALE)["state"]
    for size in ((4, 4), (6, 6)):
        result = step(pool, state, guided(), preview="jpeg")
        state = result["state"]
        assert pool.model.calls[-1][0].shape[2:] == size
    assert end(state).shape == (1, 4, 6, 6)


def test_a_latent_that_would_grow_under_a_mask_or_beyond_all_memory_is_refused() -> None:
    masked = {"samples": torch.zeros(1, 4, 4, 4), "noise_mask": torch.zeros(1, 32, 32)}
    with pytest.raises(PromptError, match="cannot keep what a noise mask covers"):
        begin(sampler="lcm", latent=masked, options=UPSCALE)
    huge = {"upscale": {"ratio": 1e6, "steps": 1, "method": "area"}}
    with pytest.raises(PromptError, match="would take"):
        begin(sampler="lcm", latent={"samples": torch.zeros(1, 4, 4, 4)}, options=huge)


def test_a_control_sees_the_text_that_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def residuals(_: object, x_in: Tensor, timesteps: Tensor, context: Tensor, *more: Any) -> list[Tensor]:
        seen.append(context)
        return [x_in]

    monkeypatch.setattr(AnalyticControlNet, "residuals", residuals)
    own = torch.full((1, 77, 8), 9.0)
    positive = conditioning(1.0, control=[application()], cross_attn_controlnet=own)
    call = guided(positive=positive, applications=[application()])
    pool, state = AnalyticPool(), begin(positive=positive, applications=[application()])["state"]
    control(pool, state, call, 0)
    assert [context.mean().item() for context in seen] == [9.0]
    made = control(pool, state, call, 0)
    step(pool, state, call, residuals=[made])
    assert sorted(context.mean().item() for _, _, context in pool.model.calls) == [0.5, 1.0]
