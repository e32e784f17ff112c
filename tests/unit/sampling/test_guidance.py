"""Check which conditionings share a model call, and how results combine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.sampling.guidance import Batch, Guidance, combine, plan_batches
from comfyserverless.sampling.parametrization import discrete_parametrization

PARAMETRIZATION = discrete_parametrization("epsilon")
X = torch.zeros(2, 4, 4, 4)
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
    return [[e.side for e in batch.entries] for batch in plan_batches(guidance, sigma, PARAMETRIZATION)]


def outputs(guidance: Guidance, *values: float) -> list[tuple[Batch, Tensor]]:
    batches = plan_batches(guidance, 1.0, PARAMETRIZATION)
    return [
        (
            batch,
            torch.cat(
                [torch.full_like(X, values[e.side]) * (1 + float(e.cond[0, 0, 0])) for e in batch.entries]
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
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION)
    context = batch.context(2)
    assert context.shape == (4, 77 * 6, 8)
    assert context[:, 0, 0].tolist() == [2.0, 2.0, 1.0, 1.0]


def test_lengths_beyond_four_repeats_are_separate_calls() -> None:
    assert plan(Guidance([entry(77 * 5)], [entry(77)], 7.0)) == [[0], [1]]


def test_different_controls_are_separate_calls() -> None:
    one = application()
    guidance = Guidance([entry(control=[one])], [entry()], 7.0, [one])
    batches = plan_batches(guidance, 1.0, PARAMETRIZATION)
    assert [batch.controls for batch in batches] == [(0,), ()]


def test_equal_controls_share_a_call_even_if_the_hint_was_fetched_twice() -> None:
    one, two = application(), application(strength=0.5)
    copies = [application(HINT.clone()), application(HINT.clone(), strength=0.5)]
    guidance = Guidance([entry(control=[one, two])], [entry(control=copies)], 7.0, [one, two])
    (batch,) = plan_batches(guidance, 1.0, PARAMETRIZATION)
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
