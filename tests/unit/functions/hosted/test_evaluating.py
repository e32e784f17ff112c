"""Evaluate the sides of guidance apart, with the bits that the whole has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core.values import ClipRef, ModelRef, Patch
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.host.models.scratch import file_ref
from comfyserverless.models.pool import ModelPool

X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(2)) * 5
STATE = {"sampler": "euler", "walk": {"x": X, "sigmas": [5.0, 1.0, 0.0], "step": 0}}


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool()


@pytest.fixture(scope="module")
def model(tiny_models: Path) -> ModelRef:
    return ModelRef(file_ref(tiny_models / "checkpoints" / "sd15_tiny.safetensors"))


@pytest.fixture(scope="module")
def sides(pool: ModelPool, model: ModelRef) -> list[Any]:
    encoder = pool.text(ClipRef((model.file,)))
    return [[[encoder.encode(text)[0], {}]] for text in ("a house", "")]


def run(pool: ModelPool, name: str, **inputs: Any) -> Any:
    """Run a function."""
    function = FUNCTIONS[name]
    return function.execute(function.load_model(inputs, pool), **inputs)


def evaluate(pool: ModelPool, model: ModelRef, sides: list[Any], cfg: float, **changes: Any) -> Any:
    """Evaluate at the state."""
    given = {"positive": sides[0], "negative": sides[1], "cfg": cfg, "guide": None, "applications": []}
    return run(
        pool,
        "denoise.evaluate",
        model=model,
        state=STATE,
        residuals=[],
        **{**given, "guided": False, **changes},
    )


@pytest.mark.parametrize("patches", [(), (Patch("rescale_cfg", (("multiplier", 0.7),)),)])
def test_sides_put_together_have_the_bits_of_a_step(
    pool: ModelPool, model: ModelRef, sides: list[Any], patches: tuple[Patch, ...]
) -> None:
    patched = ModelRef(model.file, patches=patches)
    apart = evaluate(pool, patched, sides, 2.0)
    guided = evaluate(pool, patched, sides, 7.0, guided=True)
    plain = apart["negative"] + (apart["positive"] - apart["negative"]) * 7.0
    assert torch.equal(guided["negative"], apart["negative"])
    assert torch.equal(guided["positive"], plain) is not bool(patches)
    step = run(
        pool, "denoise.step", model=patched, state=STATE, positive=sides[0], negative=sides[1], cfg=7.0,
        guide=None, applications=[], residuals=[], uncond=None, single_evaluation=True, preview="none",
    )  # fmt: skip
    expected = X + (X - guided["positive"]) / 5.0 * (1.0 - 5.0)
    torch.testing.assert_close(step["state"]["walk"]["x"], expected)


def test_one_side_is_evaluated_alone(pool: ModelPool, model: ModelRef, sides: list[Any]) -> None:
    alone = evaluate(pool, model, [sides[0], []], 1.0)
    assert alone["negative"] is None
    assert alone["positive"].shape == X.shape


def test_middle_side_is_given_too(pool: ModelPool, model: ModelRef, sides: list[Any]) -> None:
    guide = {"mode": "dual", "middle": sides[1], "scale": 1.0}
    given = evaluate(pool, model, sides, 2.0, guide=guide)
    assert torch.equal(given["middle"], given["negative"])


def test_tokens_that_were_cut_elsewhere_are_encoded(pool: ModelPool, model: ModelRef) -> None:
    from comfyserverless.core.errors import PromptError
    from comfyserverless.host.encoders.tokens import Tokenizer, plain_tokens

    clip = ClipRef((model.file,))
    tokens = plain_tokens(Tokenizer(("l",), ()).tokenize_with_weights("a (red:1.2) cat"))
    encoded = run(pool, "text.encode_tokens", clip=clip, tokens=tokens)
    expected = pool.text(clip).encode("a (red:1.2) cat")
    assert torch.equal(encoded["cond"], expected[0])
    assert torch.equal(encoded["pooled"], expected[1])
    vector = torch.zeros(pool.text(clip).parts[0].config.width)
    tokens["l"][0][2][0] = vector
    assert not torch.equal(run(pool, "text.encode_tokens", clip=clip, tokens=tokens)["cond"], expected[0])
    with pytest.raises(PromptError, match="a chunk of 3 tokens"):
        run(pool, "text.encode_tokens", clip=clip, tokens={"l": [tokens["l"][0][:3]]})
