"""Say what sampling sees of a model: its facts and noise process, and what is called when it is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import DIFFERENTIAL_DIFFUSION, PYTHON_PATCH, ModelRef, Patch
from comfyserverless.functions.patching.builtin.registry import BUILDERS
from comfyserverless.functions.patching.options import OptionsBuilder
from comfyserverless.functions.patching.pickled import PICKLED
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.sampling.parametrization import Parametrization, discrete_parametrization
from comfyserverless.sampling.processes.foreign import ForeignParametrization

_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A model with its patches.

    facts, parametrization: as patches have left them; options: ComfyUI's model_options, None if nothing is
    called.
    """

    facts: ModelFacts
    parametrization: Parametrization
    options: Mapping[str, Any] | None = None

    @property
    def needs_negative(self) -> bool:
        """Tell whether patches want the negative to be evaluated at every scale of guidance."""
        return self.options is not None and bool(self.options.get("disable_cfg1_optimization"))


def subject_of(model: ModelRef, facts: ModelFacts) -> Subject:
    """Return what sampling sees of a model; facts: of its file.

    Raises PromptError for unknown patches and for what of a pack's patches is not supported.
    """
    return _subject(model.patches, facts)


@lru_cache(maxsize=_KEPT)
def _subject(patches: tuple[Patch, ...], facts: ModelFacts) -> Subject:
    builder = OptionsBuilder(facts, discrete_parametrization(facts.prediction))
    if facts.process is not None:
        _apply(facts.process, builder)
    for number, patch in enumerate(patches):
        builder.number = number
        _apply(patch, builder)
    return Subject(builder.facts, builder.parametrization, builder.options or None)


def _apply(patch: Patch, builder: OptionsBuilder) -> None:
    arguments = dict(patch.arguments)
    if patch.name == PYTHON_PATCH:
        loaded = PICKLED.load(str(arguments["path"]))
        builder.merge(loaded.get("model_options") or {})
        model_sampling = builder.replace_objects(loaded.get("object_patches") or {})
        if model_sampling is not None:
            builder.parametrization = ForeignParametrization(model_sampling)
    elif patch.name != DIFFERENTIAL_DIFFUSION:  # which is no function: it is part of the mask
        if patch.name not in BUILDERS:
            raise PromptError(f"this server knows no model patch {patch.name!r}")
        BUILDERS[patch.name](builder, **arguments)


def take_subject(model: ModelRef, pool: Any) -> dict[str, Any]:
    """Return the component `subject` of a model, from the header of its file."""
    return {"subject": subject_of(model, pool.facts(model))}


def take_diffusion(model: ModelRef, pool: Any) -> dict[str, Any]:
    """Return the components `subject` and `diffusion` of a model."""
    return {**take_subject(model, pool), "diffusion": pool.diffusion(model)}
