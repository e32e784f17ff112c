"""Which family a file belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import FileRef, ModelRef, Patch
from comfyserverless.functions.patching.subject import subject_of
from comfyserverless.functions.saving.marks import file_marks
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.families.registry import find_network, identify
from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.unet_layout import read_layout, unet_names
from tests.support.make_tiny_models import Spec, build, vae_kl
from tests.unit.models.files import mini_unet, shapes_of, thinned, write_file

PREFIX = "model.diffusion_model."
SDXL = {"mults": (1, 2, 4), "depths": (0, 1, 2), "mid": 2, "ctx": 40, "adm": 96, "linear": True}

REFINER = SDXL | {"mults": (1, 2, 4, 4), "depths": (0, 2, 2, 0)}


def family_of(spec: Spec) -> str:
    return identify(shapes_of(Spec().put(PREFIX, spec)))[1].family


def test_a_unet_with_convolutional_projections_is_sd15() -> None:
    facts = identify(shapes_of(Spec().put(PREFIX, mini_unet())))[1]
    assert (facts.family, facts.scale_factor, facts.prediction) == ("sd15", 0.18215, "epsilon")
    assert (facts.latent_channels, facts.in_channels, facts.context_width) == (4, 4, 8)


def test_an_inpainting_unet_keeps_its_family_and_tells_its_input_channels() -> None:
    facts = identify(shapes_of(mini_unet(in_ch=9)))[1]
    assert (facts.family, facts.in_channels, facts.latent_channels) == ("sd15", 9, 4)


def test_a_unet_with_a_vector_condition_is_sdxl() -> None:
    facts = identify(shapes_of(Spec().put(PREFIX, mini_unet(**SDXL))))[1]
    assert (facts.family, facts.scale_factor, facts.adm_width) == ("sdxl", 0.13025, 96)


def test_a_mark_in_the_file_makes_sdxl_predict_velocity() -> None:
    spec = Spec().put(PREFIX, mini_unet(**SDXL))
    spec.data("v_pred", torch.tensor(1.0))
    assert identify(shapes_of_data(spec))[1].prediction == "v_prediction"


PROCESSES = [
    ({"v_pred": torch.zeros(0)}, "v_prediction", None),
    (
        {"v_pred": torch.zeros(0), "ztsnr": torch.zeros(0)},
        "v_prediction",
        ("model_sampling_discrete", {"sampling": "v_prediction", "zsnr": True}),
    ),
    (
        {"edm_vpred.sigma_max": torch.tensor(120.0), "edm_vpred.sigma_min": torch.tensor(0.5)},
        "epsilon",
        ("model_sampling_edm", {"sampling": "v_prediction", "sigma_max": 120.0, "sigma_min": 0.5}),
    ),
    (
        {"edm_mean": torch.zeros(0), "edm_std": torch.zeros(0)},
        "epsilon",
        ("model_sampling_edm", {"sampling": "edm_playground_v2.5", "sigma_max": 80.0, "sigma_min": 0.002}),
    ),
]


@pytest.mark.parametrize(("marks", "prediction", "process"), PROCESSES)
def test_marks_in_a_file_of_sdxl_name_its_noise_process_and_a_saved_file_has_them_again(
    tmp_path: Path,
    marks: dict[str, torch.Tensor],
    prediction: str,
    process: tuple[str, dict[str, object]] | None,
) -> None:
    tensors = build(mini_unet(**SDXL), "marked", torch.float16)
    facts = identify(open_weights(write_file(tmp_path / "a.safetensors", tensors | marks).path))[1]
    assert facts.prediction == prediction
    assert (facts.process and (facts.process.name, dict(facts.process.arguments))) == process
    again = {name: each.make() for name, each in file_marks(ModelRef(FileRef("a")), facts).items()}
    saved = write_file(tmp_path / "b.safetensors", tensors | again)
    assert identify(open_weights(saved.path))[1] == facts


@pytest.mark.parametrize(
    ("levels", "told"),
    [(0.001, "from 0.002 to 0.001"), (float("nan"), "to nan"), ([1.0, 2.0], "not one number")],
)
def test_levels_that_are_none_are_refused(tmp_path: Path, levels: object, told: str) -> None:
    tensors = build(mini_unet(**SDXL), "marked", torch.float16) | {"edm_vpred.sigma_max": torch.tensor(levels)}
    with pytest.raises(ModelFileError, match=told):
        identify(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))


@pytest.mark.parametrize("marks", [process for _, _, process in PROCESSES if process])
def test_the_noise_process_of_a_file_is_what_sampling_sees(marks: tuple[str, dict[str, object]]) -> None:
    name, arguments = marks
    patch = Patch(name, tuple(arguments.items()))  # type: ignore[arg-type]
    plain = ModelFacts("sdxl", 4, 4, 0.13025, "epsilon", context_width=8)
    own = subject_of(ModelRef(FileRef("a")), replace(plain, process=patch))
    patched = subject_of(ModelRef(FileRef("a"), patches=(patch,)), plain)
    assert torch.equal(own.parametrization.sigmas, patched.parametrization.sigmas)
    assert own.parametrization.sigma_max != subject_of(ModelRef(FileRef("a")), plain).parametrization.sigma_max
    assert replace(own.facts, process=None) == patched.facts


def shapes_of_data(spec: Spec) -> object:
    spec["v_pred"] = ((), "i", None)
    return shapes_of(spec)


def test_linear_projections_without_a_vector_condition_are_sd2() -> None:
    assert family_of(mini_unet(linear=True)) == "sd2"


@pytest.mark.parametrize("spread", [0.02, 0.5])
def test_sd2_predicts_velocity_if_its_telltale_bias_is_spread(tmp_path: Path, spread: float) -> None:
    spec = mini_unet(linear=True, mults=(1, 2, 4, 4), depths=(1, 1, 1, 0))
    tensors = build(Spec().put(PREFIX, spec), "sd2", torch.float16)
    name = PREFIX + "output_blocks.11.1.transformer_blocks.0.norm1.bias"
    tensors[name] = torch.linspace(-spread, spread, tensors[name].numel())
    facts = identify(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))[1]
    assert facts.prediction == ("v_prediction" if spread > 0.1 else "epsilon")


def test_a_vector_condition_without_attention_at_the_finest_and_the_coarsest_level_is_a_refiner() -> None:
    facts = identify(shapes_of(mini_unet(**REFINER)))[1]
    assert (facts.family, facts.scale_factor, facts.prediction) == ("sdxl_refiner", 0.13025, "epsilon")


def test_an_image_guided_unet_is_refused_and_the_supported_families_are_named() -> None:
    unclip = mini_unet(**(SDXL | {"depths": (1, 2, 0)}))
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: .*supported: sd15, sd2, sdxl, sdxl_refiner"):
        identify(shapes_of(unclip))


def test_sdxl_that_was_made_smaller_keeps_its_family() -> None:
    smaller = thinned(mini_unet(**SDXL), {"middle_block": 0, "output_blocks.1": 1})
    assert family_of(smaller) == family_of(thinned(mini_unet(**SDXL), {"middle_block": -1})) == "sdxl"


def test_a_unet_that_is_guided_by_a_picture_alone_is_refused_by_name() -> None:
    spec = Spec().put(PREFIX, mini_unet(in_ch=8))
    spec.lin("cc_projection", 8, 12)
    with pytest.raises(ModelFileError, match="Stable Zero123"):
        identify(shapes_of(spec))


def test_a_file_that_is_no_diffusion_model_is_refused() -> None:
    with pytest.raises(ModelFileError, match="is no diffusion model of a supported family"):
        identify(shapes_of(vae_kl(4)))


def test_a_unet_under_diffusers_names_is_the_same_family() -> None:
    weights = shapes_of(mini_unet())
    renamed = weights.renamed(unet_names(read_layout(weights), weights))
    assert identify(renamed)[1] == identify(weights)[1]
    assert set(find_network(renamed)) == set(weights)
