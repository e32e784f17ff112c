"""Encoded prompts: mixed, joined, silenced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS

LONG, SHORT = torch.ones(1, 4, 8), torch.full((1, 2, 8), 3.0)


def call(name: str, **inputs: Any) -> Mapping[str, Any]:
    return FUNCTIONS[name].execute({}, **inputs)


def test_average_counts_missing_tokens_as_nothing() -> None:
    pooled = {"to_pooled": torch.zeros(1, 2), "origin_pooled": torch.ones(1, 2)}
    made = call("cond.average", to=LONG, origin=SHORT, strength=0.75, **pooled)
    assert made["cond"][0, :, 0].tolist() == [1.5, 1.5, 0.75, 0.75]
    assert made["pooled"].tolist() == [[0.25, 0.25]]


@pytest.mark.parametrize(("to", "origin"), [(None, torch.ones(1, 2)), (torch.ones(1, 2), None)])
def test_average_takes_the_only_pooled_vector(to: Any, origin: Any) -> None:
    made = call("cond.average", to=SHORT, origin=LONG, to_pooled=to, origin_pooled=origin, strength=0.5)
    assert made["cond"].shape == SHORT.shape
    assert made["pooled"].tolist() == [[1.0, 1.0]]


def test_concat_appends_tokens() -> None:
    made = call("cond.concat", to=LONG, origin=SHORT)["cond"]
    assert made[0, :, 0].tolist() == [1.0, 1.0, 1.0, 1.0, 3.0, 3.0]


def test_prompts_of_other_models_are_refused() -> None:
    with pytest.raises(PromptError, match="8 and 16 features"):
        call("cond.concat", to=LONG, origin=torch.ones(1, 2, 16))


def test_silenced_prompt_keeps_its_shapes() -> None:
    made = call("cond.zero", cond=SHORT, pooled=torch.ones(1, 5))
    assert torch.equal(made["cond"], torch.zeros(1, 2, 8))
    assert torch.equal(made["pooled"], torch.zeros(1, 5))
    assert call("cond.zero", cond=SHORT, pooled=None)["pooled"] is None
