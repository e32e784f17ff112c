"""T2I-Adapter files of the released sizes, by shapes alone, in the namings of the releases and of diffusers."""

from __future__ import annotations

import pytest
from accelerate import init_empty_weights
from diffusers.models.adapter import T2IAdapter

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.adapters.layout import find_adapter, read_adapter_layout
from comfyserverless.models.adapters.network import Adapter
from comfyserverless.models.reading.header import TensorInfo
from comfyserverless.models.reading.weights import Weights
from tests.support.make_tiny_models import Spec, controlnet_unet
from tests.unit.models.adapters.files import full_adapter, light_adapter
from tests.unit.models.files import MINI_UNET, mini_unet, shapes_of

FULL_BLOCKS, SDXL_BLOCKS = (2, 5, 8, 11), (3, 5, 8, -1)


def shapes_in_module(weights: Weights) -> dict[str, tuple[int, ...]]:
    with init_empty_weights():
        module = Adapter(read_adapter_layout(weights))
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    ("spec", "hint_channels", "blocks"),
    [
        (full_adapter(entry=64), 1, FULL_BLOCKS),
        (full_adapter(entry=192), 3, FULL_BLOCKS),
        (full_adapter(entry=192, has_convolution=True), 3, FULL_BLOCKS),
        (full_adapter(entry=768), 3, SDXL_BLOCKS),
        (full_adapter(entry=256), 1, SDXL_BLOCKS),
        (light_adapter(), 3, FULL_BLOCKS),
    ],
    ids=["grey", "coloured", "convolution", "sdxl", "sdxl grey", "light"],
)
def test_structure_is_read_from_the_tensors(spec: Spec, hint_channels: int, blocks: tuple[int, ...]) -> None:
    weights = find_adapter(shapes_of(spec))
    assert weights is not None
    layout = read_adapter_layout(weights)
    assert (layout.hint_channels, layout.block_numbers) == (hint_channels, blocks)
    assert shapes_in_module(weights) == {name: tuple(spec[name][0]) for name in spec}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("full_adapter", {"in_channels": 1, "channels": [320, 640, 1280, 1280]}),
        ("full_adapter_xl", {"in_channels": 3, "channels": [320, 640, 1280, 1280], "downscale_factor": 16}),
        ("light_adapter", {"in_channels": 3, "channels": [320, 640, 1280], "num_res_blocks": 4}),
    ],
)
def test_files_of_diffusers_have_the_same_structure(kind: str, config: dict[str, object]) -> None:
    with init_empty_weights():
        module = T2IAdapter(adapter_type=kind, **config)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    root = Weights(
        "a.safetensors", {name: TensorInfo(next(module.parameters()).dtype, s) for name, s in shapes.items()}
    )
    weights = find_adapter(root)
    assert weights is not None
    assert shapes_in_module(weights) == {name: weights.shape(name) for name in weights}
    assert len(weights) == len(shapes)


def test_other_files_are_no_adapters() -> None:
    for spec in (mini_unet(), controlnet_unet(MINI_UNET)):
        assert find_adapter(shapes_of(spec)) is None


def test_unknown_structures_are_refused_with_what_was_found() -> None:
    weights = find_adapter(shapes_of(full_adapter(entry=100)))
    assert weights is not None
    with pytest.raises(ModelFileError, match="takes 100 channels, which is not supported"):
        read_adapter_layout(weights)
