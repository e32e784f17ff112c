"""Build networks of packs: layers without initialisation, attention, hooks that are refused."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.host.layers import attention, factories, hooks
from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.layers.vision import clip_preprocess


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "GroupNorm", "LayerNorm", "ConvTranspose2d"])
def test_cast_layers_take_the_type_of_their_input(name: str) -> None:
    sizes = {"GroupNorm": (1, 4), "LayerNorm": (4,), "Conv2d": (4, 4, 1), "ConvTranspose2d": (4, 4, 1)}
    plain = getattr(torch.nn, name)(*sizes.get(name, (4, 4))).double()
    cast = getattr(factories.manual_cast, name)(*sizes.get(name, (4, 4)))
    cast.load_state_dict(plain.state_dict())
    cast = cast.double()
    x = torch.randn(2, 4, 4, 4)
    assert cast(x).dtype is torch.float32
    torch.testing.assert_close(cast(x).double(), plain(x.double()), rtol=1e-4, atol=1e-5)


def test_layers_of_a_number_of_dimensions_are_made() -> None:
    assert isinstance(factories.disable_weight_init.conv_nd(1, 2, 3, 1), torch.nn.Conv1d)  # type: ignore[attr-defined]


def test_weight_is_cast_to_the_input_through_its_functions() -> None:
    layer = factories.disable_weight_init.Linear(2, 2)  # type: ignore[attr-defined]
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    layer.weight_function = [lambda weight: weight * 3]
    weight, bias = factories.cast_bias_weight(layer, torch.zeros(1, 2, dtype=torch.float64))
    assert weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert bias is not None
    assert bias.dtype is torch.float64


def test_attention_takes_heads_side_by_side_or_apart() -> None:
    q, k, v = (torch.randn(2, length, 8) for length in (3, 5, 5))
    joined = attention.optimized_attention(q, k, v, 2)
    apart = [each.reshape(2, -1, 2, 4).transpose(1, 2) for each in (q, k, v)]
    assert torch.equal(attention.optimized_attention(*apart, 2, skip_reshape=True), joined)
    kept = attention.optimized_attention(*apart, 2, skip_reshape=True, skip_output_reshape=True)
    assert kept.shape == (2, 2, 3, 4)
    only_first = torch.tensor([True, False, False, False, False]).expand(3, 5)
    masked = attention.optimized_attention(q, k, v, 2, mask=only_first)
    torch.testing.assert_close(masked, v[:, :1].expand(2, 3, 8))


def test_parts_of_transformers_run() -> None:
    x = torch.randn(1, 3, 8)
    assert attention.CrossAttention(8, heads=2, dim_head=4)(x).shape == x.shape
    assert attention.FeedForward(8, glu=True)(x).shape == x.shape


def test_hooks_that_change_weights_are_refused_and_empty_groups_are_not() -> None:
    cond = [[torch.zeros(1), {}]]
    assert hooks.set_hooks_for_conditioning(cond, hooks.HookGroup()) is cond
    group = hooks.HookGroup()
    group.add(hooks.Hook())
    with pytest.raises(NotSupportedError, match="hooks of conditionings"):
        hooks.set_hooks_for_conditioning(cond, group)
    with pytest.raises(NotSupportedError, match="WeightHook"):
        hooks.WeightHook(strength_model=1.0)
    assert len(group.clone_and_combine(hooks.HookGroup()).hooks) == 1


def test_pictures_are_prepared_for_vision_models() -> None:
    assert clip_preprocess(torch.rand(1, 30, 50, 3)).shape == (1, 3, 224, 224)
