"""Check which conditionings share a model call, and how results combine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.guidance import Batch, Guidance, Mode, combine, plan_batches
from comfyserverless.sampling.parametrization import discrete_parametrization

PARAMETRIZATION = discrete_parametrization("epsilon")
X = torch.zeros(2, 4, 4, 4)
SIZE = (4, 4)
HINT = torch.rand(1, 8, 8, 3, generator=torch.Generator().manual_seed(0))


def entry(tokens: int = 77, value: float = 0.0, **options: Any) -> list[Any]:
    return [torch.full((1, tokens, 8), value), options]


def application(hint: Tensor = HINT, **changes: Any) -> dict[str, Any]:
    return {
        "control_net": "net",
        "hint": hint,
        "strength": 1.0,
        "start_percent": 0.0,
        "end_percent": 1.0,
        **changes,
    }


def plan(guidance: Guidance, sigma: float = 1.0) -> list[list[int]]:
    return [[e.side for e in batch.entries] for batch in plan_batches(guidance, sigma, PARAMETRIZATION, SIZE)]


def outputs(guidance: Guidance, *values: float) -> list[tuple[Batch, Tensor]]:
    batches = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    return [
        (
            batch,
            torch.cat(
                [
                    torch.full_like(e.region.crop(X), values[e.side]) * (1 + float(e.cond[0, 0, 0]))
                    for e in batch.entries
                ]
            ),
        )
        for batch in batches
    ]


def test_equal_shapes_share_one_call_with_the_negative_first() -> None:
    assert plan(Guidance([entry()], [entry()], 7.0)) == [[1, 0]]


def test_scale_one_leaves_the_negative_out() -> None:
    guidance = Guidance([entry()], [entry()], 1.0)
    assert plan(guidance) == [[0]]
    assert torch.equal(combine(guidance, outputs(guidance, 3.0, 99.0), X).denoised, torch.full_like(X, 3.0))


def test_lengths_up_to_four_repeats_share_a_call_at_their_common_multiple() -> None:
    guidance = Guidance([entry(77 * 2, 1.0)], [entry(77 * 3, 2.0)], 7.0)
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    context = batch.context(2)
    assert context.shape == (4, 77 * 6, 8)
    assert context[:, 0, 0].tolist() == [2.0, 2.0, 1.0, 1.0]


def test_lengths_beyond_four_repeats_are_separate_calls() -> None:
    assert plan(Guidance([entry(77 * 5)], [entry(77)], 7.0)) == [[0], [1]]


def test_different_controls_are_separate_calls() -> None:
    one = application()
    guidance = Guidance([entry(control=[one])], [entry()], 7.0, [one])
    batches = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    assert [batch.controls for batch in batches] == [(0,), ()]


def test_equal_controls_share_a_call_even_if_the_hint_was_fetched_twice() -> None:
    one, two = application(), application(strength=0.5)
    copies = [application(HINT.clone()), application(HINT.clone(), strength=0.5)]
    guidance = Guidance([entry(control=[one, two])], [entry(control=copies)], 7.0, [one, two])
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    assert batch.controls == (0, 1)


def test_unlisted_control_is_an_error() -> None:
    guidance = Guidance(
        [entry(control=[application()])], [entry()], 7.0, [application(torch.zeros(1, 8, 8, 3))]
    )
    with pytest.raises(ValueError, match="not listed"):
        plan(guidance)


def test_entry_acts_only_in_its_range() -> None:
    middle = PARAMETRIZATION.percent_to_sigma(0.5)
    guidance = Guidance([entry(start_percent=0.0, end_percent=0.5)], [entry()], 7.0)
    assert plan(guidance, middle) == [[1, 0]]
    assert plan(guidance, middle * 0.99) == [[1]]
    assert plan(Guidance([entry(start_percent=0.5, end_percent=1.0)], [entry()], 7.0), middle * 1.01) == [[1]]


def test_guidance_extrapolates_from_negative_to_positive() -> None:
    guidance = Guidance([entry()], [entry()], 7.0)
    assert torch.equal(combine(guidance, outputs(guidance, 3.0, 1.0), X).denoised, torch.full_like(X, 15.0))


def test_entries_of_a_side_are_averaged_by_strength() -> None:
    guidance = Guidance([entry(value=0.0), entry(value=1.0, strength=3.0)], [entry()], 7.0)
    assert plan(guidance) == [[1, 0, 0]]
    combined = combine(guidance, outputs(guidance, 4.0, 1.0), X).denoised
    assert torch.equal(combined, torch.full_like(X, 1 + (7 - 1) * 7.0))


def test_side_without_an_active_entry_counts_as_zero() -> None:
    guidance = Guidance([entry(start_percent=0.9, end_percent=1.0)], [entry()], 2.0)
    assert torch.equal(combine(guidance, outputs(guidance, 5.0, 1.0), X).denoised, torch.full_like(X, -1.0))


def test_unguided_estimate_is_that_of_the_negative() -> None:
    guidance = Guidance([entry()], [entry()], 7.0)
    uncond = combine(guidance, outputs(guidance, 3.0, 1.0), X).uncond
    assert uncond is not None
    assert torch.equal(uncond, torch.full_like(X, 1.0))


def test_needed_negative_is_evaluated_at_scale_one() -> None:
    guidance = Guidance([entry()], [entry()], 1.0, needs_negative=True)
    assert plan(guidance) == [[1, 0]]
    estimate = combine(guidance, outputs(guidance, 3.0, 99.0), X)
    assert torch.equal(estimate.denoised, torch.full_like(X, 3.0))
    assert estimate.uncond is not None


def test_a_branch_is_planned_as_if_the_other_did_not_exist() -> None:
    sides = ([entry(), entry(tokens=154)], [entry(value=2.0)], 7.0)
    assert plan(Guidance(*sides)) == [[1, 0, 0]]
    assert plan(Guidance(*sides, branch="positive")) == [[0, 0]]
    assert plan(Guidance(*sides, branch="negative")) == [[1]]
    assert plan(Guidance([entry()], [entry()], 1.0, branch="negative")) == []


def test_negative_that_was_evaluated_apart_takes_its_place() -> None:
    guidance = Guidance([entry()], [entry()], 7.0, branch="positive")
    estimate = combine(guidance, outputs(guidance, 3.0), X, torch.full_like(X, 1.0))
    assert torch.equal(estimate.denoised, torch.full_like(X, 15.0))
    assert estimate.uncond is not None
    assert torch.equal(estimate.uncond, torch.full_like(X, 1.0))


def test_area_is_seen_alone_and_gets_a_counterpart_on_the_other_side() -> None:
    guidance = Guidance([entry(area=[4, 2, 0, 2]), entry()], [entry(value=0.5, pooled_output="p")], 7.0)
    plans = [
        [(e.side, e.region.crop(X).shape[-1], e.options.get("pooled_output")) for e in batch.entries]
        for batch in plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    ]
    assert plans == [[(1, 2, "p"), (0, 2, None)], [(1, 4, "p"), (0, 4, None)]]


def test_area_outside_of_the_picture_is_refused_when_its_entry_acts() -> None:
    middle = PARAMETRIZATION.percent_to_sigma(0.5)
    guidance = Guidance([entry(area=[4, 4, 0, 4], start_percent=0.0, end_percent=0.5)], [entry()], 7.0)
    with pytest.raises(PromptError, match="an area begins at x 32, y 0, outside of the picture"):
        plan(guidance, middle)
    assert plan(guidance, middle * 0.99) == [[1]]


def test_counterpart_is_made_of_the_smallest_entry_around_and_limited_alike() -> None:
    positive = [entry(area=[1, 1, 2, 2], strength=0.25, start_percent=0.0, end_percent=1.0)]
    negative = [entry(1, value=1.0), entry(2, area=[2, 2, 2, 2]), entry(3, area=[4, 2, 0, 2])]
    batches = plan_batches(Guidance(positive, negative, 7.0), 1.0, PARAMETRIZATION, SIZE)
    made = [e for batch in batches for e in batch.entries if e.side == 1 and e.region.crop(X).numel() == 8]
    assert [(e.cond.shape[1], e.strength) for e in made] == [(2, 0.25)]


def test_entries_that_see_parts_of_other_shapes_do_not_share_a_call() -> None:
    guidance = Guidance([entry(area=[4, 2, 0, 0]), entry(area=[2, 4, 0, 0]), entry(area=[4, 2, 0, 2])], [], 1.0)
    assert [len(batch.entries) for batch in plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)] == [2, 1]


def test_average_counts_each_entry_where_it_acts() -> None:
    left = torch.zeros(1, 4, 4)
    left[..., :2] = 1.0
    guidance = Guidance(
        [entry(value=0.0, mask=left), entry(value=1.0, mask=1.0 - left, mask_strength=0.5)], [], 1.0
    )
    denoised = combine(guidance, outputs(guidance, 3.0), X).denoised
    assert torch.allclose(denoised[..., :2], torch.tensor(3.0))
    assert torch.allclose(denoised[..., 2:], torch.tensor(6.0))


def test_cells_that_no_entry_covers_are_nothing() -> None:
    guidance = Guidance([entry(area=[4, 2, 0, 0])], [], 1.0)
    denoised = combine(guidance, outputs(guidance, 3.0), X).denoised
    assert torch.count_nonzero(denoised[..., 2:]) == 0


def middle_guidance(mode: Mode) -> Guidance:
    return Guidance([entry()], [entry()], 3.0, mode=mode, middle=[entry()], scale=2.0)


def sides_are(guidance: Guidance, positive: float, negative: float, middle: float) -> Tensor:
    values = {0: positive, 1: negative, 2: middle}
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    made = torch.cat([torch.full_like(X, values[e.side]) for e in batch.entries])
    return combine(guidance, [(batch, made)], X).denoised


def test_modes_put_three_sides_together() -> None:
    assert torch.equal(sides_are(middle_guidance("dual"), 5.0, 1.0, 2.0), torch.full_like(X, 1 + 1 * 2 + 3 * 3))
    nested = 2 + (5 - 2) * 3
    expected = torch.full_like(X, 1 + (nested - 1) * 2)
    assert torch.equal(sides_are(middle_guidance("dual_nested"), 5.0, 1.0, 2.0), expected)


def test_perpendicular_guidance_ignores_what_of_the_negative_lies_along_the_positive() -> None:
    along = sides_are(middle_guidance("perp_neg"), 5.0, 3.5, 2.0)
    assert torch.allclose(along, torch.full_like(X, 2.0 + 3.0 * 3.0), atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "order"), [("dual", [0, 2, 1]), ("dual_nested", [0, 2, 1]), ("perp_neg", [2, 1, 0])]
)
def test_sides_are_stacked_in_the_order_of_the_original(mode: Mode, order: list[int]) -> None:
    assert plan(middle_guidance(mode)) == [order]


def test_a_default_acts_behind_the_others_where_they_leave_something() -> None:
    half = entry(value=1.0, mask=torch.tensor([[[1.0, 1.0, 0.0, 0.0]] * 4]))
    guidance = Guidance([entry(value=3.0, default=True), half], [], 1.0)
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION, SIZE)
    assert [float(each.cond[0, 0, 0]) for each in batch.entries] == [3.0, 1.0]
    denoised = combine(guidance, outputs(guidance, 1.0), X).denoised
    assert denoised[0, 0, 0].tolist() == [2.0, 2.0, 4.0, 4.0]


def test_a_default_is_not_evaluated_where_nothing_is_left() -> None:
    (batch,) = plan_batches(Guidance([entry(), entry(default=True)], [], 1.0), 1.0, PARAMETRIZATION, SIZE)
    assert len(batch.entries) == 1
    (alone,) = plan_batches(Guidance([entry(default=True)], [], 1.0), 1.0, PARAMETRIZATION, SIZE)
    assert len(alone.entries) == 1


def test_entries_whose_controls_see_a_text_of_their_own_share_calls_with_each_other_only() -> None:
    own = {"cross_attn_controlnet": torch.ones(1, 154, 8)}
    assert plan(Guidance([entry(**own)], [entry()], 7.0)) == [[0], [1]]
    far = {"cross_attn_controlnet": torch.ones(1, 77 * 5, 8)}
    assert plan(Guidance([entry(**own)], [entry(**far)], 7.0)) == [[0], [1]]
    (batch,) = plan_batches(Guidance([entry(**own)], [entry(**own)], 7.0), 1.0, PARAMETRIZATION, SIZE)
    assert torch.equal(batch.context(1), torch.zeros(2, 77, 8))
    assert torch.equal(batch.control_context(1), torch.ones(2, 154, 8))
    (batch,) = plan_batches(Guidance([entry()], [entry()], 7.0), 1.0, PARAMETRIZATION, SIZE)
    assert torch.equal(batch.control_context(1), batch.context(1))
