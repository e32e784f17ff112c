"""Know what the built-in patches of a handle put in the place of parts of a model."""

from __future__ import annotations

from typing import Any

from comfyserverless.core.values import ModelRef
from comfyserverless.functions.patching.subject import subject_of
from comfyserverless.functions.patching.view import LatentFormat
from comfyserverless.host.models.facts import model_facts
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.processes.foreign import ModelSamplingView

_GUIDING = (
    "sampler_cfg_function",
    "sampler_pre_cfg_function",
    "sampler_post_cfg_function",
    "sampler_calc_cond_batch_function",
)


def patched_object(ref: ModelRef, name: str) -> Any:
    """Return what the file, or patches of a handle, put in the place of a part; None if they leave it."""
    if name not in ("model_sampling", "latent_format"):
        return None
    facts = model_facts(ref)
    if not ref.patches and facts.process is None:
        return None
    subject = subject_of(ref, facts)
    if name == "latent_format":
        return None if subject.facts == facts else LatentFormat(subject.facts)
    untouched = subject.parametrization is discrete_parametrization(facts.prediction)
    return None if untouched else ModelSamplingView(subject.parametrization)


def guides(ref: ModelRef) -> bool:
    """Tell whether patches of a handle have a part in guidance, so that it has to be done where they are."""
    options = subject_of(ref, model_facts(ref)).options if ref.patches else None
    return options is not None and any(key in options for key in _GUIDING)
