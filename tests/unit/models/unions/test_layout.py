"""Union ControlNet files of the released sizes, by shapes alone, and files that do not fit together."""

from __future__ import annotations

import pytest
from accelerate import init_empty_weights

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.controlnet import controlnet_config, controlnet_names
from comfyserverless.models.diffusers_names import with_original_names
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import read_layout
from comfyserverless.models.unions.layout import is_union, is_union_name
from comfyserverless.models.unions.network import UnionNetwork
from tests.support.make_tiny_models import controlnet_unet
from tests.unit.models.files import shapes_of
from tests.unit.models.test_unet import SDXL
from tests.unit.models.unions.files import SMALL, released, union_controlnet


@pytest.mark.parametrize("types", [6, 8], ids=["union", "promax"])
def test_file_of_the_released_size_fits_in_the_naming_of_the_releases(types: int) -> None:
    root = shapes_of(released(union_controlnet(SDXL, types)))
    assert root.shape("control_add_embedding.linear_1.weight") == (1280, 256 * types)
    assert "add_embedding.linear_1.weight" in root
    weights = with_original_names(root)
    assert is_union(weights)
    config = controlnet_config(weights, read_layout(weights), "a.safetensors")
    with init_empty_weights(include_buffers=False):
        module = UnionNetwork(**config)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert {new: weights.shape(old) for old, new in controlnet_names(weights).items()} == shapes


def test_other_controlnets_are_no_unions() -> None:
    weights = shapes_of(controlnet_unet(SMALL))
    assert not is_union(weights)
    assert not any(is_union_name(name) for name in weights)
    assert "num_control_type" not in controlnet_config(weights, read_layout(weights), "a.safetensors")


@pytest.mark.parametrize(
    ("structure", "name", "shape"),
    [
        (SMALL, "task_embedding", (0, 32)),
        (SMALL, "task_embedding", (5, 32)),
        (SMALL | {"mc": 36}, "spatial_ch_projs.bias", (36,)),
    ],
    ids=["no types", "uneven types", "uneven heads"],
)
def test_widths_that_do_not_fit_together_are_told(
    structure: dict[str, object], name: str, shape: tuple[int, ...]
) -> None:
    spec = union_controlnet(structure, 6)
    spec[name] = (shape, *spec[name][1:])
    weights: Weights = shapes_of(spec)
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: this union ControlNet has \d types"):
        controlnet_config(weights, read_layout(weights), weights.path)
