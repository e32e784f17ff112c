"""What union ControlNets compute, against diffusers' module and the rules of ComfyUI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.controlnets.controlnet import ControlNetModel
from diffusers.models.controlnets.controlnet_union import ControlNetUnionModel
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import UNION_TYPES, ControlNetRef, FileRef
from comfyserverless.models.controlnet import ControlNet, controlnet_config, controlnet_names
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.models.unet_layout import read_layout
from tests.support.make_tiny_models import Spec, build, controlnet_unet
from tests.unit.models.files import shapes_of, write_file
from tests.unit.models.unions.files import SMALL, released, union_controlnet

Taker = Callable[..., ControlNet]
PROMAX = union_controlnet(SMALL, 8)
FILES = {"promax": PROMAX, "six": union_controlnet(SMALL, 6), "plain": controlnet_unet(SMALL)}
X, TIMESTEPS = torch.linspace(-1, 1, 128).reshape(2, 4, 4, 4), torch.tensor([900.0, 900.0])
CONTEXT, ADM = torch.linspace(-1, 1, 112).reshape(2, 7, 8), torch.linspace(0, 1, 24).reshape(2, 12)
HINT = torch.linspace(0, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)


@pytest.fixture(scope="module")
def take(tmp_path_factory: pytest.TempPathFactory) -> Taker:
    """Return a function that takes one of FILES from a pool, used as types."""
    pool, folder = ModelPool(), tmp_path_factory.mktemp("unions")
    refs = {name: write_file(folder / f"{name}.safetensors", tensors_of(spec)) for name, spec in FILES.items()}

    def take(*types: int, name: str = "promax") -> ControlNet:
        return taken(pool, refs[name], *types)

    return take


def taken(pool: ModelPool, file: FileRef, *types: int) -> ControlNet:
    found = pool.controlnet(ControlNetRef(file, types))
    assert isinstance(found, ControlNet)
    return found


def tensors_of(spec: Spec) -> dict[str, Tensor]:
    return build(spec, "union", torch.float32)


def residuals(net: ControlNet, hint: Tensor = HINT) -> list[Tensor]:
    return net.residuals(X, TIMESTEPS, CONTEXT, hint, ADM)


def library_module(kind: type, spec: Spec) -> Any:
    """Return diffusers' module with the numbers of a file."""
    weights = shapes_of(spec)
    config = controlnet_config(weights, read_layout(weights), "a.safetensors")
    module = kind(**config).eval()
    names = controlnet_names(weights)
    module.load_state_dict({names[name]: tensor for name, tensor in tensors_of(spec).items()})
    return module


@pytest.mark.parametrize("number", [0, 3, 7])
def test_residuals_of_a_type_are_those_of_the_library(take: Taker, number: int) -> None:
    chosen = torch.zeros(2, 8)
    chosen[:, number] = 1.0
    with torch.no_grad():
        blocks, middle = library_module(ControlNetUnionModel, PROMAX)(
            X,
            TIMESTEPS,
            CONTEXT,
            controlnet_cond=[HINT.expand(2, -1, -1, -1)],
            control_type=chosen,
            control_type_idx=[number],
            class_labels=ADM,
            return_dict=False,
        )
    for got, expected in zip(residuals(take(number)), [*blocks, middle], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_without_a_type_it_is_a_controlnet_whose_time_says_so(take: Taker) -> None:
    plain = library_module(ControlNetModel, FILES["plain"])
    union = library_module(ControlNetUnionModel, PROMAX)
    with torch.no_grad():
        untold = union.control_add_embedding(union.control_type_proj(torch.zeros(8)).reshape(1, -1))
        plain.time_embedding.linear_2.bias += untold[0]
        blocks, middle = plain(
            X,
            TIMESTEPS,
            encoder_hidden_states=CONTEXT,
            controlnet_cond=HINT,
            class_labels=ADM,
            return_dict=False,
        )
    for got, expected in zip(residuals(take()), [*blocks, middle], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_every_type_and_none_give_other_residuals(take: Taker) -> None:
    found = [residuals(take(*types))[-1] for types in [(), *((number,) for number in range(8))]]
    alike = [
        (one, other)
        for one in range(len(found))
        for other in range(one)
        if torch.allclose(found[one], found[other], rtol=1e-3)
    ]
    assert alike == []


@pytest.mark.parametrize("types", [(), (3,)], ids=["auto", "type"])
def test_hint_of_an_item_changes_nothing_for_other_items(take: Taker, types: tuple[int, ...]) -> None:
    net = take(*types)
    both = residuals(net, torch.cat([HINT, 1 - HINT]))
    for got, one, other in zip(both, residuals(net, HINT), residuals(net, 1 - HINT), strict=True):
        torch.testing.assert_close(got[:1], one[:1], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[1:], other[1:], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(one, other, rtol=1e-3)


def test_file_in_the_naming_of_the_releases_gives_the_same_bits(tmp_path: Path, take: Taker) -> None:
    tensors = tensors_of(PROMAX)
    renamed = {new: tensors[old] for new, old in zip(released(PROMAX), PROMAX, strict=True)}
    net = taken(ModelPool(), write_file(tmp_path / "released.safetensors", renamed), 6)
    assert all(map(torch.equal, residuals(net), residuals(take(6))))


def test_types_share_the_weights_of_their_file(take: Taker) -> None:
    assert take(0).resident is take(5).resident is take().resident


def test_layers_that_come_and_go_give_the_same_bits(tmp_path: Path, take: Taker) -> None:
    expected = residuals(take(7))
    file = write_file(tmp_path / "again.safetensors", tensors_of(PROMAX))
    whole_bytes = sum(layer.size_bytes for layer in take(7).resident.layers)
    pool = ModelPool(options=PoolOptions(device_bytes=whole_bytes * 3 // 4))
    net = taken(pool, file, 7)
    for _ in range(2):
        assert all(map(torch.equal, residuals(net), expected))
        assert pool.weights_bytes < whole_bytes


def test_type_that_a_file_does_not_have_is_told_with_those_that_it_has(take: Taker) -> None:
    with pytest.raises(PromptError, match=r"has no type 'tile', but 6 types: openpose, depth, .*, segment$"):
        take(UNION_TYPES.index("tile"), name="six")
    assert len(residuals(take(UNION_TYPES.index("segment"), name="six"))) == 7
    for number in (-1, 99):
        with pytest.raises(PromptError, match=f"has no type '{number}'"):
            take(number)


def test_several_types_at_once_are_refused(take: Taker) -> None:
    with pytest.raises(PromptError, match="one type at a time, not as 2"):
        take(0, 3)


def test_other_controlnets_take_no_notice_of_types(take: Taker) -> None:
    told = residuals(take(0, 99, name="plain"))
    assert all(map(torch.equal, told, residuals(take(name="plain"))))


def test_lack_of_a_part_is_told(tmp_path: Path) -> None:
    spec = Spec({name: PROMAX[name] for name in PROMAX if not name.startswith("spatial_ch_projs")})
    file = write_file(tmp_path / "less.safetensors", tensors_of(spec))
    with pytest.raises(ModelFileError, match=r"lacks 2 tensors of UnionNetwork: spatial_ch_projs\."):
        ModelPool().controlnet(ControlNetRef(file))
