"""Build the `model_options` of a patched model: the dict in which ComfyUI keeps what it calls, and where.

Keys: sampler_cfg_function; sampler_pre_cfg_function and sampler_post_cfg_function (lists);
model_function_wrapper; sampler_calc_cond_batch_function; denoise_mask_function; disable_cfg1_optimization;
transformer_options with patches (lists by name), patches_replace (by attention and block) and wrappers (by kind
and key).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.sampling.parametrization import Parametrization

Function = Callable[..., Any]

MEMORY = "walk_memory"
"""Key of model_options, and of transformer_options: a dict that patches may keep values in from one evaluation
of a walk to the next."""

STREAM = "stream"
"""Key of the memory: {state: of the generator behind the starting noise}, where a patch draws numbers."""

_DRAWS = "draws_numbers"

SCRATCH = "scratch"
"""Key of transformer_options: a dict that patches may keep anything in within one evaluation."""

WRAPPERS = ("predict_noise", "calc_cond_batch", "apply_model", "diffusion_model")
"""The kinds of wrappers that are called; the others surround a whole sampling call, which no worker sees."""

_OBJECTS = ("model_sampling",)


class OptionsBuilder:
    """Collect what the patches of one handle want called.

    facts, parametrization: of the model as patched so far; number: of the patch that is being applied.
    """

    def __init__(self, facts: ModelFacts, parametrization: Parametrization) -> None:
        self.facts = facts
        self.parametrization = parametrization
        self.number = 0
        self.options: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        """Set an option that there is one of; the last patch counts."""
        self.options[key] = value

    def append(self, key: str, function: Function) -> None:
        """Add a function to a list of model_options, such as sampler_post_cfg_function."""
        self.options.setdefault(key, []).append(function)

    def patch(self, name: str, function: Function) -> None:
        """Add a function to a list of transformer_options' patches, such as output_block_patch."""
        self._transformer("patches").setdefault(name, []).append(function)

    def multiply_attention(self, attention: str, factors: tuple[float, float, float, float]) -> None:
        """Multiply an attention's queries, keys, values and results."""
        kept = self._transformer("attention_factors")
        before = kept.get(attention, (1.0, 1.0, 1.0, 1.0))
        kept[attention] = tuple(one * other for one, other in zip(before, factors, strict=True))

    def draw(self) -> None:
        """Keep a generator in the memory for this patch (see `stream_of`)."""
        self.options[_DRAWS] = True

    def merge(self, given: Mapping[str, Any]) -> None:
        """Add what a pack has put into a dict of its own.

        Lists are added behind what is there, dicts key by key; everything else takes the place of what is
        there. Raises PromptError for wrappers of kinds that are not called here.
        """
        _merge(self.options, _without_shortcuts(given))
        for kind, added in self._transformer("wrappers").items():
            if kind not in WRAPPERS and any(added.values()):
                raise PromptError(
                    f"A custom node wraps {kind!r} of a model: sampling runs step by step on several"
                    f" workers, so there is no such call. Wrappers that work: {', '.join(WRAPPERS)}"
                )

    def replace_objects(self, given: Mapping[str, Any]) -> Any | None:
        """Return a pack's `model_sampling` if it has one. Raises PromptError for objects not used here."""
        unknown = sorted(name for name in given if name not in _OBJECTS)
        if unknown:
            raise PromptError(
                f"A custom node replaces {', '.join(unknown)} of a model; on the workers only"
                f" {', '.join(_OBJECTS)} can be replaced"
            )
        return given.get("model_sampling")

    def _transformer(self, key: str) -> dict[str, Any]:
        kept: dict[str, Any] = self.options.setdefault("transformer_options", {}).setdefault(key, {})
        return kept


def _without_shortcuts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Move wrappers that lie beside the transformer's options into them, where the others are."""
    options = dict(given)
    wrappers = options.pop("wrappers", None)
    if wrappers:
        inner = options.get("transformer_options", {})
        merged: dict[str, Any] = {}
        _merge(merged, inner.get("wrappers", {}))
        _merge(merged, wrappers)
        options["transformer_options"] = {**inner, "wrappers": merged}
    return options


def _merge(into: dict[Any, Any], given: Mapping[Any, Any]) -> None:
    for key, value in given.items():
        before = into.get(key)
        if isinstance(value, Mapping):
            into[key] = dict(before) if isinstance(before, Mapping) else {}
            _merge(into[key], value)
        elif isinstance(value, list):
            into[key] = [*(before if isinstance(before, list) else ()), *value]
        else:
            into[key] = value


def draws_numbers(options: Mapping[str, Any] | None) -> bool:
    """Tell whether patches draw numbers while they are called."""
    return options is not None and _DRAWS in options


@contextmanager
def stream_of(transformer_options: Mapping[str, Any]) -> Iterator[torch.Generator]:
    """Give the walk's generator, which all patches share in the order of their calls, as in ComfyUI."""
    memory = transformer_options.get(MEMORY, {})
    generator = torch.Generator("cpu")
    kept = memory.get(STREAM)
    if kept is not None:
        generator.set_state(kept["state"].cpu())
    else:
        generator.manual_seed(0)
    yield generator
    memory[STREAM] = {"state": generator.get_state()}
