"""Walk through a small U-Net: without patches its own bits, with patches ComfyUI's calls and numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import Tensor

from comfyserverless.models.patching.attention import attend
from comfyserverless.models.patching.calling import Executor, wrappers_of
from comfyserverless.models.patching.unet import UnetInputs, input_blocks, output_blocks, run_patched

Call = tuple[Any, ...]


def build(is_linear: bool) -> UNet2DConditionModel:
    torch.manual_seed(0)
    network = UNet2DConditionModel(
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=(32, 64),
        layers_per_block=1,
        transformer_layers_per_block=(1, 2),
        cross_attention_dim=16,
        attention_head_dim=2,
        norm_num_groups=8,
        use_linear_projection=is_linear,
    )
    return network.eval().requires_grad_(False)


NETWORKS = {is_linear: build(is_linear) for is_linear in (False, True)}
NETWORK = NETWORKS[False]


def inputs(height: int = 8, width: int = 12, residuals: list[Tensor] | None = None) -> UnetInputs:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, height, width, generator=generator)
    context = torch.randn(2, 5, 16, generator=generator)
    return UnetInputs(x, torch.tensor([500.0, 500.0]), context, None, residuals)


def own(network: UNet2DConditionModel, given: UnetInputs, **extra: Any) -> Tensor:
    output: Tensor = network(given.x, given.timesteps, given.context, return_dict=False, **extra)[0]
    return output


def patched(options: dict[str, Any], given: UnetInputs | None = None) -> Tensor:
    return run_patched(NETWORK, given or inputs(), options)


def with_patches(**patches: Any) -> dict[str, Any]:
    return {"patches": {name: [patch] for name, patch in patches.items()}}


IDENTITIES: dict[str, Any] = {
    "attn1_patch": lambda q, k, v, extra: (q, k, v),
    "attn2_patch": lambda q, k, v, extra: (q, k, v),
    "attn1_output_patch": lambda n, extra: n,
    "attn2_output_patch": lambda n, extra: n,
    "middle_patch": lambda x, extra: x,
    "input_block_patch": lambda h, options: h,
    "input_block_patch_after_skip": lambda h, options: h,
    "output_block_patch": lambda h, skip, options: (h, skip),
    "emb_patch": lambda embedding, channels, options: embedding,
}


@pytest.mark.parametrize("is_linear", [False, True])
@pytest.mark.parametrize("size", [(8, 12), (7, 9)])
def test_walk_without_patches_has_the_bits_of_the_network(is_linear: bool, size: tuple[int, int]) -> None:
    network, given = NETWORKS[is_linear], inputs(*size)
    assert torch.equal(run_patched(network, given, {}), own(network, given))


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_leaves_the_bits(name: str) -> None:
    assert torch.equal(patched(with_patches(**{name: IDENTITIES[name]})), own(NETWORK, inputs()))


def test_replacement_by_the_same_attention_leaves_the_bits() -> None:
    def same(q: Tensor, k: Tensor, v: Tensor, extra: Any) -> Tensor:
        return attend(q, k, v, extra["n_heads"])

    blocks = [("input", 1), ("middle", 0), ("output", 2)]
    replace = {name: dict.fromkeys(blocks, same) for name in ("attn1", "attn2")}
    assert torch.equal(patched({"patches_replace": replace}), own(NETWORK, inputs()))


def test_blocks_are_numbered_as_in_the_original_release() -> None:
    seen: list[Call] = []

    def note(h: Tensor, *others: Any) -> Any:
        seen.append((*others[-1]["block"], h.shape[1], tuple(h.shape[2:])))
        return (h, *others[:-1]) if len(others) > 1 else h

    patched(with_patches(input_block_patch=note, output_block_patch=note))
    assert seen == [
        ("input", 0, 32, (8, 12)),
        ("input", 1, 32, (8, 12)),
        ("input", 2, 32, (4, 6)),
        ("input", 3, 64, (4, 6)),
        ("output", 0, 64, (4, 6)),
        ("output", 1, 64, (4, 6)),
        ("output", 2, 64, (8, 12)),
        ("output", 3, 32, (8, 12)),
    ]
    assert len(list(input_blocks(NETWORK))) == len(list(output_blocks(NETWORK))) == 4


def test_attention_patches_are_told_where_they_are_once_per_block() -> None:
    seen: list[Call] = []

    def note(n: Tensor, extra: dict[str, Any]) -> Tensor:
        keys = ("block", "block_index", "transformer_index", "n_heads", "dim_head", "activations_shape")
        seen.append(tuple(extra[key] for key in keys))
        assert "patches" not in extra
        assert extra["original_shape"] == [2, 4, 8, 12]
        return n

    patched(with_patches(attn2_output_patch=note))
    assert seen == [
        (("input", 1), 0, 0, 2, 16, [2, 32, 8, 12]),
        (("middle", 0), 0, 1, 2, 32, [2, 64, 4, 6]),
        (("middle", 0), 1, 1, 2, 32, [2, 64, 4, 6]),
        (("output", 2), 0, 2, 2, 16, [2, 32, 8, 12]),
        (("output", 3), 0, 3, 2, 16, [2, 32, 8, 12]),
    ]


def test_replacement_of_one_transformer_block_goes_before_that_of_its_whole_block() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        def replacement(q: Tensor, k: Tensor, v: Tensor, extra: Any) -> Tensor:
            assert q.shape == (2, 24, 64)
            seen.append(f"{name} {extra['block_index']}")
            return v

        return replacement

    block = {("middle", 0): named("all"), ("middle", 0, 1): named("second")}
    changed = patched({"patches_replace": {"attn1": block}})
    assert seen == ["all 0", "second 1"]
    assert not torch.equal(changed, own(NETWORK, inputs()))


def test_attention_is_computed_from_what_patches_give() -> None:
    def to_text(q: Tensor, k: Tensor, v: Tensor, extra: Any) -> tuple[Tensor, Tensor, None]:
        return q, k[:, :2], None

    shorter = inputs()
    shorter = UnetInputs(shorter.x, shorter.timesteps, shorter.context[:, :2])
    assert torch.equal(patched(with_patches(attn2_patch=to_text)), own(NETWORK, shorter))


def test_a_map_made_smaller_after_the_skip_comes_back_to_size() -> None:
    def halve(h: Tensor, options: dict[str, Any]) -> Tensor:
        return torch.nn.functional.avg_pool2d(h, 2) if options["block"] == ("input", 3) else h

    def grow(h: Tensor, skip: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.interpolate(h, size=skip.shape[2:]), skip

    changed = patched(with_patches(input_block_patch_after_skip=halve, output_block_patch=grow))
    assert changed.shape == (2, 4, 8, 12)
    assert not torch.equal(changed, own(NETWORK, inputs()))


def test_residuals_are_added_as_the_network_does() -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = [(2, 32, 8, 12), (2, 32, 8, 12), (2, 32, 4, 6), (2, 64, 4, 6), (2, 64, 4, 6)]
    residuals = [torch.randn(shape, generator=generator) for shape in shapes]
    given = inputs(residuals=residuals)
    expected = own(
        NETWORK,
        given,
        down_block_additional_residuals=residuals[:-1],
        mid_block_additional_residual=residuals[-1],
    )
    assert torch.equal(patched({}, given), expected)


def test_factors_scale_the_result_of_an_attention_and_ones_leave_it() -> None:
    ones = {"attention_factors": {"attn1": (1.0, 1.0, 1.0, 1.0)}}
    assert torch.equal(patched(ones), own(NETWORK, inputs()))
    nothing = {"attention_factors": {"attn1": (1.0, 1.0, 1.0, 0.0)}}
    silenced = patched(with_patches(attn1_output_patch=lambda n, extra: n * 0))
    torch.testing.assert_close(patched(nothing), silenced)


def test_the_time_embedding_is_patched_with_the_model_channels() -> None:
    def double(embedding: Tensor, channels: int, options: Any) -> Tensor:
        assert (embedding.shape, channels) == ((2, 128), 32)
        return embedding * 2

    assert not torch.equal(patched(with_patches(emb_patch=double)), own(NETWORK, inputs()))


def test_wrappers_surround_each_other_first_one_outermost() -> None:
    def outer(executor: Any, x: int) -> int:
        assert executor.class_obj == "owner"
        return int(executor(x + 1)) * 10

    def inner(executor: Any, x: int) -> int:
        return int(executor(x * 2))

    wrappers = wrappers_of("apply_model", {"wrappers": {"apply_model": {None: [outer], "key": [inner]}}})
    assert Executor("APPLY_MODEL", lambda x: x + 5, "owner", wrappers).execute(3) == (4 * 2 + 5) * 10
