"""Mark files with what their network predicts, as ComfyUI does (0.8.0): texts for people, tensors for loaders.

A mark says what the file's own network was trained for. Of patches only a continuous v-prediction is marked,
and, for a network trained for v-prediction, whether the process in use leaves no signal at its highest level.
The statistics that mark Playground v2.5 are kept, which ComfyUI drops: a file without them draws other things.
"""

from __future__ import annotations

import torch

from comfyserverless.core.values import ModelRef
from comfyserverless.functions.patching.subject import subject_of
from comfyserverless.models.exporting.entries import Entry, constant
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.sampling.parametrization import DiscreteParametrization, Parametrization
from comfyserverless.sampling.processes.continuous import ContinuousParametrization
from comfyserverless.sampling.processes.discrete import zero_terminal_levels

_SPEC_VERSION = "1.0.0"
_ARCHITECTURES = {"sdxl": "stable-diffusion-xl-v1-base", "sdxl_refiner": "stable-diffusion-xl-v1-refiner"}
_EDITING_ARCHITECTURE = "stable-diffusion-xl-v1-edit"
_PREDICT_KEYS = {"epsilon": "epsilon", "v_prediction": "v"}


def file_texts(model: ModelRef, facts: ModelFacts, title: str) -> dict[str, str]:
    """Return what the metadata of a file says of its model; title: of the file."""
    texts = {}
    if facts.family in _ARCHITECTURES:
        is_edit = facts.family == "sdxl" and facts.is_editing
        texts = {
            "modelspec.architecture": _EDITING_ARCHITECTURE if is_edit else _ARCHITECTURES[facts.family],
            "modelspec.sai_model_spec": _SPEC_VERSION,
            "modelspec.implementation": "sgm",
            "modelspec.title": title,
        }
    if isinstance(_own_process(model, facts), DiscreteParametrization):
        texts["modelspec.predict_key"] = _PREDICT_KEYS[facts.prediction]
    return texts


def file_marks(model: ModelRef, facts: ModelFacts) -> dict[str, Entry]:
    """Return the tensors that tell a loader what the network of a handle predicts; most are empty."""
    process, own = subject_of(model, facts).parametrization, _own_process(model, facts)
    marks: dict[str, torch.Tensor] = {}
    if isinstance(process, ContinuousParametrization):
        if process.prediction == "v_prediction":
            ends = {"sigma_max": process.high, "sigma_min": process.low}
            marks |= {f"edm_vpred.{name}": torch.tensor(sigma) for name, sigma in ends.items()}
        elif process.prediction == "edm" and facts.process is not None and not model.patches:
            marks |= {"edm_mean": torch.zeros(0), "edm_std": torch.zeros(0)}
    if facts.prediction == "v_prediction" and isinstance(own, DiscreteParametrization):
        marks["v_pred"] = torch.zeros(0)
        if _is_zero_terminal(process):
            marks["ztsnr"] = torch.zeros(0)
    return {name: constant(tensor) for name, tensor in marks.items()}


def _own_process(model: ModelRef, facts: ModelFacts) -> Parametrization:
    """Return the noise process that the file's own network was trained for."""
    return subject_of(ModelRef(model.file), facts).parametrization


def _is_zero_terminal(process: Parametrization) -> bool:
    if not isinstance(process, DiscreteParametrization):
        return False
    return process.sigma_max == float(zero_terminal_levels().float()[-1])
