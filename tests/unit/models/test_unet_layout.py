"""Reading a U-Net's structure from its shapes."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.controlnet import controlnet_names
from comfyserverless.models.diffusers_names import has_diffusers_names, with_original_names
from comfyserverless.models.unet_layout import read_layout, unet_names
from tests.support.make_tiny_models import controlnet_unet
from tests.unit.models.files import MINI_UNET, mini_unet, shapes_of

SDXL = {"mults": (1, 2, 4), "depths": (0, 1, 2), "mid": 2, "ctx": 40, "adm": 96, "linear": True}


def test_levels_depths_and_widths_come_from_the_shapes() -> None:
    layout = read_layout(shapes_of(mini_unet(mults=(1, 2, 4), depths=(1, 1, 0), in_ch=9)))
    assert (layout.in_channels, layout.out_channels, layout.context_width) == (9, 4, 8)
    assert layout.level_channels == (8, 16, 32)
    assert layout.level_depths == (1, 1, 0)
    assert (layout.blocks_per_level, layout.middle_depth, layout.adm_width) == (2, 1, None)


def test_convolutional_projections_mean_eight_heads_and_linear_ones_heads_of_64() -> None:
    assert read_layout(shapes_of(mini_unet())).heads() == (8, 8)
    assert read_layout(shapes_of(mini_unet(mc=64, **SDXL))).heads() == (1, 2, 4)


def test_a_vector_condition_and_deeper_transformers_are_seen() -> None:
    layout = read_layout(shapes_of(mini_unet(**SDXL)))
    assert (layout.adm_width, layout.middle_depth, layout.is_linear) == (96, 2, True)


@pytest.mark.parametrize("changes", [{}, {"nres": 1, "mults": (1, 1, 1), "depths": (0, 1, 1)}, SDXL])
def test_names_survive_the_way_to_diffusers_and_back(changes: dict[str, object]) -> None:
    weights = shapes_of(mini_unet(**changes))
    names = unet_names(read_layout(weights), weights)
    assert set(names) == set(weights), "every tensor has a name"
    assert len(set(names.values())) == len(names), "no two tensors share a name"
    renamed = weights.renamed(names)
    assert has_diffusers_names(renamed)
    assert set(with_original_names(renamed)) == set(weights)


def test_a_controlnet_is_read_by_its_encoder_half() -> None:
    layout = read_layout(shapes_of(controlnet_unet(MINI_UNET)))
    assert layout.level_channels == (8, 16)
    assert layout.out_channels == 4


def test_levels_of_unequal_blocks_are_refused() -> None:
    spec = mini_unet()
    for name in [name for name in spec if name.startswith("input_blocks.2.1.")]:
        del spec[name]
    with pytest.raises(ModelFileError, match="only some blocks of a U-Net level have attention"):
        read_layout(shapes_of(spec))


def test_a_missing_middle_block_is_refused() -> None:
    spec = mini_unet()
    for name in [name for name in spec if name.startswith("middle_block.1.")]:
        del spec[name]
    with pytest.raises(ModelFileError, match="middle block has several residual blocks and no attention"):
        read_layout(shapes_of(spec))


ODD_NAMES = (
    "foo",
    "",
    "input_blocks",
    "input_blocks.1",
    "input_blocks.1.0",
    "input_blocks.1.0.op",
    "input_blocks.x.y.z",
    "output_blocks.\u0663.0",
    "output_blocks.\u00b2.0.a.b",
    "middle_block.1",
    "down_blocks.x.resnets.0.norm1.weight",
    "mid_block.foo.0.weight",
    "up_blocks.0",
    "controlnet_cond_embedding.foo",
    "controlnet_cond_embedding.blocks.x.weight",
    "zero_convs",
    "input_hint_block.x.weight",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_tensor_of_no_known_name_is_left_out_in_both_namings(name: str) -> None:
    weights = shapes_of(mini_unet())
    names = unet_names(read_layout(weights), weights)
    spec = mini_unet()
    spec.e(name, 1)
    assert unet_names(read_layout(weights), shapes_of(spec)).items() >= names.items()
    odd = shapes_of(spec).renamed({**names, name: name})
    assert set(with_original_names(odd)) >= set(weights)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_tensor_of_no_known_name_does_not_stop_a_controlnet(name: str) -> None:
    spec = controlnet_unet(MINI_UNET)
    known = controlnet_names(shapes_of(spec))
    spec.e(name, 1)
    assert controlnet_names(shapes_of(spec)).items() >= known.items()


@pytest.mark.parametrize(
    "name",
    [
        "input_blocks.0.0.weight",
        "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight",
        "input_blocks.1.0.out_layers.3.weight",
    ],
)
def test_a_tensor_without_the_needed_sides_is_told_with_its_file(name: str) -> None:
    spec = mini_unet()
    spec[name] = ((), *spec[name][1:])
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: tensor .* has the shape \[\]"):
        read_layout(shapes_of(spec))
