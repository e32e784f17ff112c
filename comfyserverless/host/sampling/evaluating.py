"""Evaluate the model on the workers: the estimates of the clean latent for conditionings, one call at a time.

Functions around guidance (`sampler_cfg_function` and so on) and wrappers of sampling run here; those of the
model itself (`model_function_wrapper`, what is in `transformer_options`) go with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.bridge import bridge
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.library.calls import run_node
from comfyserverless.host.models.extension import WrapperExecutor, WrappersMP, get_all_wrappers
from comfyserverless.host.models.patcher import ModelPatcher
from comfyserverless.host.sampling.conditions import to_conditioning

HERE = frozenset(
    {
        "sampler_cfg_function",
        "sampler_post_cfg_function",
        "sampler_pre_cfg_function",
        "sampler_calc_cond_batch_function",
        "disable_cfg1_optimization",
        "denoise_mask_function",
    }
)
"""Keys of model_options that are obeyed in this process while it drives the sampling."""

THERE = frozenset({WrappersMP.APPLY_MODEL, WrappersMP.DIFFUSION_MODEL})
"""Wrappers that go with the model; all others are called here."""

_SIGMAS = "sample_sigmas"
_NOT_SENT = frozenset({_SIGMAS, "sigmas", "cond_or_uncond", "uuids", "callbacks", "wrappers"})
_SIDES = ("positive", "negative", "middle")


def options_to_send(model_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of options the model's evaluation on a worker needs."""
    inner = dict(model_options.get("transformer_options") or {})
    wrappers = {kind: by_key for kind, by_key in (inner.get("wrappers") or {}).items() if kind in THERE}
    kept = {name: value for name, value in inner.items() if name not in _NOT_SENT}
    if wrappers:
        kept["wrappers"] = wrappers
    outer = {name: value for name, value in model_options.items() if name not in HERE}
    return {**outer, "transformer_options": kept}


def calc_cond_batch(
    model: Any, conds: Sequence[Any], x_in: Tensor, timestep: Tensor, model_options: Mapping[str, Any]
) -> list[Tensor]:
    """Return the estimate [B, C, h, w] for each conditioning (a list of dicts; None: zeros).

    Where a patch asks on a worker, inside an evaluation of the model, that evaluation answers.
    """
    inside = getattr(model, "calc_cond_batch", None)
    if inside is not None:
        return list(inside(conds, x_in, timestep, model_options))
    wrappers = get_all_wrappers(WrappersMP.CALC_COND_BATCH, dict(model_options), is_model_options=True)
    executor = WrapperExecutor.new_executor(_calc_cond_batch, wrappers)
    estimates: list[Tensor] = executor.execute(model, conds, x_in, timestep, model_options)
    return estimates


def _calc_cond_batch(
    model: Any, conds: Sequence[Any], x_in: Tensor, timestep: Tensor, model_options: Mapping[str, Any]
) -> list[Tensor]:
    bridge().throw_if_interrupted()
    asked = [(at, to_conditioning(cond)) for at, cond in enumerate(conds) if cond]
    estimates = [torch.zeros_like(x_in) for _ in conds]
    for begin in range(0, len(asked), len(_SIDES)):
        part = asked[begin : begin + len(_SIDES)]
        sides = dict(zip(_SIDES, (cond for _, cond in part), strict=False))
        given = _evaluate(model, sides, x_in, timestep, model_options)
        for (at, _), estimate in zip(part, given, strict=False):
            estimates[at] = estimate
    return estimates


def _evaluate(
    model: Any,
    sides: Mapping[str, Any],
    x_in: Tensor,
    timestep: Tensor,
    model_options: Mapping[str, Any],
    guided_by: float | None = None,
) -> tuple[Any, ...]:
    patcher = model.current_patcher if model.current_patcher is not None else ModelPatcher(model)
    sigma = _one_level(timestep)
    sigmas = _levels_around(sigma, (model_options.get("transformer_options") or {}).get(_SIGMAS))
    return run_node(
        "HostEvaluate",
        model=patcher.ref_exactly_with(options_to_send(model_options)),
        x=x_in,
        sigmas=sigmas,
        step=sigmas.index(sigma),
        guided_by=guided_by,
        **{side: sides.get(side) for side in _SIDES},
    )


def guided_on_worker(
    model: Any,
    cond: Any,
    uncond: Any,
    scale: float,
    x_in: Tensor,
    timestep: Tensor,
    model_options: Mapping[str, Any],
) -> tuple[Tensor, Tensor]:
    """Return what guidance gives where patches of the model have a part in it, and the negative beside it."""
    bridge().throw_if_interrupted()
    sides = {"positive": to_conditioning(cond), "negative": to_conditioning(uncond)}
    denoised, negative, _ = _evaluate(model, sides, x_in, timestep, model_options, guided_by=float(scale))
    return denoised, denoised if negative is None else negative


def _one_level(timestep: Any) -> float:
    levels = torch.as_tensor(timestep).float().reshape(-1)
    if len(levels) > 1 and not bool((levels == levels[0]).all()):
        refuse("an evaluation of a batch at several noise levels")
    return float(levels[0])


def _levels_around(sigma: float, sample_sigmas: Any) -> list[float]:
    """Return the walk's levels if this is one of them, so that patches see it as a step of the walk."""
    if sample_sigmas is not None:
        levels = [float(level) for level in sample_sigmas]
        if sigma in levels:
            return levels
    return [sigma, 0.0]


def apply_model(model: Any, x: Tensor, t: Tensor, c_crossattn: Any, more: Mapping[str, Any]) -> Tensor:
    """Return the estimate for one batch of hidden states, as `BaseModel.apply_model` does."""
    if c_crossattn is None:
        refuse("apply_model without c_crossattn")
    if more.get("control") is not None or (more.get("y") is not None and model.is_adm()):
        refuse("apply_model with `control` or `y`", "sample with a conditioning instead")
    options = {"transformer_options": more.get("transformer_options") or {}}
    return calc_cond_batch(model, [[[c_crossattn, {}]]], x, t, options)[0]
