"""Models of the released sizes, by shapes alone: their names and parameters fit the libraries' modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from accelerate import init_empty_weights
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.controlnets.controlnet import ControlNetModel
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import nn

from comfyserverless.models.autoencoder_layout import autoencoder_config, find_autoencoder
from comfyserverless.models.controlnet import controlnet_config, controlnet_names
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet import unet_config
from comfyserverless.models.unet_layout import read_layout, unet_names
from tests.support.make_tiny_models import Spec, controlnet_unet, unet, vae_kl
from tests.unit.models.files import shapes_of, thinned

SD15: dict[str, Any] = {
    "mc": 320,
    "mults": (1, 2, 4, 4),
    "nres": 2,
    "depths": (1, 1, 1, 0),
    "mid": 1,
    "ctx": 768,
    "adm": None,
    "linear": False,
}
SD2 = SD15 | {"ctx": 1024, "linear": True}
SDXL = SD15 | {"mults": (1, 2, 4), "depths": (0, 2, 10), "mid": 10, "ctx": 2048, "adm": 2816, "linear": True}
REFINER = SD15 | {"mc": 384, "depths": (0, 4, 4, 0), "mid": 4, "ctx": 1280, "adm": 2560, "linear": True}
KOALA = SDXL | {"nres": 1}
DEMO = SD15 | {"mc": 64, "mults": (1, 1, 1), "nres": 1, "depths": (0, 1, 1), "ctx": 64}


SSD_1B = thinned(
    unet(**SDXL | {"mid": 4}),
    {
        "input_blocks.7": 4,
        "input_blocks.8": 4,
        "middle_block": 0,
        **{f"output_blocks.{at}": depth for at, depth in enumerate((4, 4, 10, 2, 1, 1))},
    },
)
VEGA = thinned(
    unet(**SDXL | {"depths": (0, 1, 2), "mid": 2}),
    {"middle_block": 0, **{f"output_blocks.{at}": depth for at, depth in enumerate((2, 2, 2, 1, 1, 1))}},
)


def empty_shapes(factory: Callable[[], nn.Module]) -> dict[str, tuple[int, ...]]:
    with init_empty_weights(include_buffers=False):
        return {name: tuple(tensor.shape) for name, tensor in factory().state_dict().items()}


def file_shapes(weights: Weights, names: dict[str, str]) -> dict[str, tuple[int, ...]]:
    return {new: weights.shape(old) for old, new in names.items()}


@pytest.mark.parametrize(
    ("structure", "parameters"),
    [
        (unet(**SD15), 859_520_964),
        (unet(**SD2), 865_910_724),
        (unet(**SDXL), 2_567_463_684),
        (unet(**REFINER), 2_259_526_660),
        (SSD_1B, 1_331_334_404),
        (VEGA, 745_225_604),
        (unet(**KOALA | {"depths": (0, 2, 6), "mid": 6}), 1_161_184_324),
        (thinned(unet(**KOALA | {"depths": (0, 2, 5), "mid": 5}), {"middle_block": -1}), 782_822_724),
        (unet(**DEMO), 2_142_788),
    ],
    ids=["sd15", "sd2", "sdxl", "refiner", "ssd_1b", "vega", "koala_1b", "koala_700m", "demo"],
)
def test_a_unet_of_the_released_size_fits(structure: Spec, parameters: int) -> None:
    weights = shapes_of(structure)
    layout = read_layout(weights)
    shapes = empty_shapes(lambda: UNet2DConditionModel(**unet_config(layout)))
    assert file_shapes(weights, unet_names(layout, weights)) == shapes
    total = 0
    for shape in shapes.values():
        size = 1
        for length in shape:
            size *= length
        total += size
    assert total == parameters


@pytest.mark.parametrize("structure", [SD15, SDXL], ids=["sd15", "sdxl"])
def test_a_controlnet_of_the_released_size_fits(structure: dict[str, Any]) -> None:
    weights = shapes_of(controlnet_unet(structure))
    config = controlnet_config(weights, read_layout(weights), "a.safetensors")
    assert config["conditioning_embedding_out_channels"] == (16, 32, 96, 256)
    assert not config["global_pool_conditions"]
    assert file_shapes(weights, controlnet_names(weights)) == empty_shapes(lambda: ControlNetModel(**config))


def test_a_controlnet_named_shuffle_averages_its_residuals() -> None:
    weights = shapes_of(controlnet_unet(DEMO))
    config = controlnet_config(weights, read_layout(weights), "/models/control_v11e_sd15_shuffle.pth")
    assert config["global_pool_conditions"]


def test_an_autoencoder_of_the_released_size_fits() -> None:
    weights = find_autoencoder(shapes_of(vae_kl(4, ch=128)))
    expected = empty_shapes(lambda: AutoencoderKL(**autoencoder_config(weights)))
    got = {name: weights.shape(name) for name in weights}
    assert got.keys() == expected.keys()
    assert {name: shape[: len(expected[name])] for name, shape in got.items()} == expected
