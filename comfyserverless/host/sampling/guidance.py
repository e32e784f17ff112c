"""Put estimates together as ComfyUI's samplers do, with the functions that packs put around guidance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from comfyserverless.host.models.patched import guides
from comfyserverless.host.sampling.evaluating import calc_cond_batch, guided_on_worker

_INSTEAD = ("sampler_cfg_function", "sampler_pre_cfg_function", "sampler_calc_cond_batch_function")


def cfg_function(
    model: Any,
    cond_pred: Tensor,
    uncond_pred: Tensor,
    cond_scale: float,
    x: Tensor,
    timestep: Tensor,
    model_options: Mapping[str, Any] | None = None,
    cond: Any = None,
    uncond: Any = None,
) -> Tensor:
    """Guide: negative + (positive - negative) * scale, or what `sampler_cfg_function` makes of the noises."""
    options = model_options or {}
    about = _about(model, cond_pred, uncond_pred, cond_scale, x, timestep, options)
    about |= {"input_cond": cond, "input_uncond": uncond}
    if "sampler_cfg_function" in options:
        noise = options["sampler_cfg_function"]({**about, "cond": x - cond_pred, "uncond": x - uncond_pred})
        result: Tensor = x - noise
    else:
        result = uncond_pred + (cond_pred - uncond_pred) * cond_scale
    return _after(options, result, {**about, "cond": cond, "uncond": uncond})


def _about(
    model: Any, positive: Tensor, negative: Tensor, scale: float, x: Tensor, timestep: Any, options: Any
) -> dict[str, Any]:
    return {
        "cond_scale": scale,
        "timestep": timestep,
        "sigma": timestep,
        "input": x,
        "model": model,
        "model_options": options,
        "cond_denoised": positive,
        "uncond_denoised": negative,
    }


def _after(options: Mapping[str, Any], denoised: Tensor, about: Mapping[str, Any]) -> Tensor:
    for function in options.get("sampler_post_cfg_function", ()):
        denoised = function({**about, "denoised": denoised})
    return denoised


def _is_guided_there(model: Any, options: Mapping[str, Any]) -> bool:
    """Tell whether built-in patches take part in guidance, and nothing of a pack takes its place."""
    patcher = getattr(model, "current_patcher", None)
    if patcher is None or patcher.ref is None or not guides(patcher.ref):
        return False
    return not any(key in options for key in _INSTEAD)


def sampling_function(
    model: Any,
    x: Tensor,
    timestep: Tensor,
    uncond: Any,
    cond: Any,
    cond_scale: float,
    model_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Tensor:
    """Return the guided estimate of the clean latent; at scale 1 the negative is left out unless asked for."""
    options = model_options or {}
    if _is_guided_there(model, options):
        denoised, negative = guided_on_worker(model, cond, uncond, cond_scale, x, timestep, options)
        about = _about(model, denoised, negative, cond_scale, x, timestep, options)
        return _after(options, denoised, {**about, "cond": cond, "uncond": uncond})
    is_cancelled = math.isclose(cond_scale, 1.0) and not options.get("disable_cfg1_optimization", False)
    conds = [cond, None if is_cancelled else uncond]
    if "sampler_calc_cond_batch_function" in options:
        arguments = {"conds": conds, "input": x, "sigma": timestep, "model": model, "model_options": options}
        out = options["sampler_calc_cond_batch_function"](arguments)
    else:
        out = calc_cond_batch(model, conds, x, timestep, options)
    for function in options.get("sampler_pre_cfg_function", ()):
        arguments = {"conds": conds, "conds_out": out, "cond_scale": cond_scale, "timestep": timestep}
        out = function({**arguments, "input": x, "sigma": timestep, "model": model, "model_options": options})
    return cfg_function(model, out[0], out[1], cond_scale, x, timestep, options, cond=cond, uncond=conds[1])
