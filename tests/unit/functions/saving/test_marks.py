"""Files say what their networks predict, in texts and in tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comfyserverless.core.values import FileRef, ModelRef, Patch
from comfyserverless.functions.saving.marks import file_marks, file_texts
from comfyserverless.models.families.base import ModelFacts

EPSILON = ModelFacts("sdxl", 4, 4, 0.13025, "epsilon", 2048)
VELOCITY = replace(EPSILON, prediction="v_prediction")


def discrete(sampling: str, zsnr: bool) -> Patch:
    return Patch("model_sampling_discrete", (("sampling", sampling), ("zsnr", zsnr)))


def continuous(sampling: str) -> Patch:
    arguments = (("sampling", sampling), ("sigma_max", 120.0), ("sigma_min", 0.5))
    return Patch("model_sampling_edm", arguments)


ZERO = replace(VELOCITY, process=discrete("v_prediction", True))
COSXL = replace(EPSILON, process=continuous("v_prediction"))
PLAYGROUND = replace(EPSILON, process=continuous("edm_playground_v2.5"))


@pytest.mark.parametrize(
    ("facts", "patches", "marks"),
    [
        (EPSILON, (), {}),
        (EPSILON, (discrete("v_prediction", True),), {}),
        (EPSILON, (continuous("eps"),), {}),
        (EPSILON, (continuous("v_prediction"),), {"edm_vpred.sigma_max": 120.0, "edm_vpred.sigma_min": 0.5}),
        (VELOCITY, (), {"v_pred": None}),
        (VELOCITY, (discrete("v_prediction", True),), {"v_pred": None, "ztsnr": None}),
        (ZERO, (), {"v_pred": None, "ztsnr": None}),
        (ZERO, (discrete("v_prediction", False),), {"v_pred": None}),
        (COSXL, (), {"edm_vpred.sigma_max": 120.0, "edm_vpred.sigma_min": 0.5}),
        (PLAYGROUND, (), {"edm_mean": None, "edm_std": None}),
    ],
)
def test_marks_say_what_loaders_have_to_know(
    facts: ModelFacts, patches: tuple[Patch, ...], marks: dict[str, float | None]
) -> None:
    made = file_marks(ModelRef(FileRef("/m"), patches=patches), facts)
    assert made.keys() == marks.keys()
    for name, value in marks.items():
        assert made[name].shape == ((0,) if value is None else ())
        assert value is None or made[name].make().item() == pytest.approx(value)


def texts(facts: ModelFacts) -> dict[str, str]:
    return file_texts(ModelRef(FileRef("/m"), patches=(discrete("v_prediction", True),)), facts, "mix 3")


def test_only_models_of_a_known_architecture_are_described() -> None:
    assert texts(VELOCITY) == {
        "modelspec.architecture": "stable-diffusion-xl-v1-base",
        "modelspec.sai_model_spec": "1.0.0",
        "modelspec.implementation": "sgm",
        "modelspec.title": "mix 3",
        "modelspec.predict_key": "v",
    }
    assert texts(replace(EPSILON, family="sd15")) == {"modelspec.predict_key": "epsilon"}
    assert "modelspec.predict_key" not in texts(COSXL)
    assert texts(replace(EPSILON, in_channels=8))["modelspec.architecture"].endswith("-edit")
    assert texts(replace(EPSILON, family="sdxl_refiner"))["modelspec.architecture"].endswith("-refiner")
