"""Latents: what each function does to cells, beside the recorded latents of the parity cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS


def call(name: str, **inputs: Any) -> Tensor:
    made = FUNCTIONS[name].execute({}, **inputs)["samples"]
    assert isinstance(made, Tensor)
    return made


def latent(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_blend_weighs_the_first_by_the_factor() -> None:
    first, second = latent(2, 4, 4, 4), latent(1, 4, 4, 4, seed=1)
    assert torch.allclose(
        call("latent.blend", first=first, second=second, factor=0.75), first * 0.75 + second * 0.25
    )


def test_interpolation_keeps_lengths() -> None:
    first, second = latent(1, 4, 4, 4), latent(1, 4, 4, 4, seed=1)
    mixed = call("latent.interpolate", first=first, second=second, ratio=0.3)
    lengths = [torch.linalg.vector_norm(each, dim=1) for each in (mixed, first, second)]
    assert torch.allclose(lengths[0], 0.3 * lengths[1] + 0.7 * lengths[2], atol=1e-5)
    assert torch.allclose(call("latent.interpolate", first=first, second=second, ratio=1.0), first, atol=1e-5)


def test_interpolation_of_nothing_is_nothing() -> None:
    nothing = torch.zeros(1, 4, 2, 2)
    assert torch.equal(call("latent.interpolate", first=nothing, second=nothing, ratio=0.5), nothing)


def test_what_was_added_can_be_taken_away() -> None:
    first, second = latent(2, 4, 4, 4), latent(2, 4, 4, 4, seed=1)
    both = call("latent.sum", first=first, second=second, sign=1)
    assert torch.allclose(call("latent.sum", first=both, second=second, sign=-1), first, atol=1e-6)
    assert torch.equal(call("latent.multiply", samples=first, multiplier=-2.0), first * -2.0)


def test_second_latent_gets_the_size_of_the_first() -> None:
    assert call("latent.sum", first=latent(1, 4, 4, 6), second=latent(1, 4, 8, 8), sign=1).shape == (1, 4, 4, 6)
    assert call("latent.batch", first=latent(1, 4, 4, 6), second=latent(2, 4, 8, 8)).shape == (3, 4, 4, 6)


def test_latents_of_other_families_are_refused() -> None:
    with pytest.raises(PromptError, match="4 and 16 channels"):
        call("latent.sum", first=latent(1, 4, 4, 4), second=latent(1, 16, 4, 4), sign=1)


def test_paste_shows_the_source_by_the_mask() -> None:
    destination, source = torch.zeros(2, 4, 4, 4), torch.ones(1, 4, 2, 2)
    mask = torch.tensor([[[1.0, 0.0], [0.0, 0.5]]])
    pasted = call(
        "latent.paste", destination=destination, source=source, mask=mask, x=1, y=1, resize_source=False
    )
    assert torch.equal(pasted[:, 0, 1:3, 1:3], mask.expand(2, -1, -1))
    assert float(pasted.sum()) == 2 * 4 * 1.5


def test_flips_turns_and_crops() -> None:
    x = latent(1, 4, 3, 5)
    assert torch.equal(call("latent.flip", samples=x, axis="x"), x.flip(2))
    assert torch.equal(call("latent.flip", samples=x, axis="y"), x.flip(3))
    assert torch.equal(call("latent.rotate", samples=x, turns=1)[..., -1], x[:, :, 0])
    assert torch.equal(call("latent.crop", samples=x, x=1, y=1, width=9, height=1), x[:, :, 1:2, 1:])


def test_concat_puts_one_beside_the_other() -> None:
    one, two = latent(1, 4, 3, 5), latent(1, 4, 3, 2, seed=1)
    assert torch.equal(call("latent.concat", first=one, second=two, axis="x"), torch.cat([one, two], dim=3))
    assert torch.equal(call("latent.concat", first=one, second=two, axis="-x"), torch.cat([two, one], dim=3))
    with pytest.raises(PromptError, match="5x3 and 2x3"):
        call("latent.concat", first=one, second=two, axis="y")
    with pytest.raises(PromptError, match="'t' is for videos"):
        call("latent.concat", first=one, second=two, axis="-t")


@pytest.mark.parametrize(
    ("index", "amount", "expected"), [(1, 2, (1, 3)), (9, 2, (4, 5)), (-2, 9, (3, 5)), (-9, 1, (0, 1))]
)
def test_cut_counts_from_either_end(index: int, amount: int, expected: tuple[int, int]) -> None:
    x = latent(1, 4, 3, 5)
    assert torch.equal(
        call("latent.cut", samples=x, axis="x", index=index, amount=amount), x[..., slice(*expected)]
    )


def test_cut_to_batch_takes_the_stripes_of_one_item_after_the_other() -> None:
    x = latent(2, 4, 5, 3)
    made = call("latent.cut_to_batch", samples=x, axis="y", size=2)
    assert torch.equal(made, torch.stack([x[0, :, :2], x[0, :, 2:4], x[1, :, :2], x[1, :, 2:4]]))
