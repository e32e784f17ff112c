"""Turn conditionings into dicts of guiders, and back with what packs have changed."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.host.sampling.conditions import add_values, convert_cond, to_conditioning
from comfyserverless.host.sampling.inputs import CONDConstant, CONDCrossAttn, CONDNoiseShape, CONDRegular
from comfyserverless.host.sampling.masks import prepare_mask

TENSOR = torch.ones(1, 2, 3)


def test_conditioning_comes_back_as_it_was() -> None:
    pooled = torch.zeros(1, 3)
    converted = convert_cond([[TENSOR, {"pooled_output": pooled, "strength": 0.5}]])
    assert converted[0]["cross_attn"] is TENSOR
    assert converted[0]["uuid"] != convert_cond([[TENSOR, {}]])[0]["uuid"]
    assert to_conditioning(converted) == [[TENSOR, {"pooled_output": pooled, "strength": 0.5}]]


def test_input_that_a_pack_has_replaced_counts() -> None:
    converted = convert_cond([[TENSOR, {}]])
    changed = CONDCrossAttn(TENSOR * 2)
    converted[0]["model_conds"]["c_crossattn"] = changed
    assert to_conditioning(converted)[0][0] is changed.cond


def test_entry_without_hidden_states_is_named() -> None:
    with pytest.raises(ValueError, match="cross_attn"):
        to_conditioning([{"strength": 1.0}])


def test_values_are_added_to_copies() -> None:
    given = [[TENSOR, {"a": 1}]]
    assert add_values(given, {"b": 2}) == [[TENSOR, {"a": 1, "b": 2}]]
    assert given == [[TENSOR, {"a": 1}]]


def test_inputs_are_fitted_to_batches() -> None:
    assert CONDRegular(TENSOR).process_cond(3).cond.shape == (3, 2, 3)
    shaped = CONDNoiseShape(torch.arange(16.0).reshape(1, 1, 4, 4)).process_cond(2, area=(2, 1, 1, 3))
    assert shaped.cond[0, 0].tolist() == [[7.0], [11.0]]
    long = CONDCrossAttn(torch.zeros(1, 6, 3))
    assert CONDCrossAttn(TENSOR).can_concat(long)
    assert CONDCrossAttn(TENSOR).concat([long]).shape == (2, 6, 3)
    assert not CONDCrossAttn(TENSOR).can_concat(CONDCrossAttn(torch.zeros(1, 26, 3)))
    assert CONDConstant(3).can_concat(CONDConstant(3))


def test_mask_is_resized_and_repeated_to_the_latent() -> None:
    mask = prepare_mask(torch.ones(8, 8), (3, 4, 2, 2))
    assert mask.shape == (3, 4, 2, 2)
