"""Have a whole walk made on the workers, where no code of a pack has to run at its steps here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.library.calls import run_node
from comfyserverless.host.models.extension import WrappersMP
from comfyserverless.host.sampling.conditions import to_conditioning
from comfyserverless.host.sampling.evaluating import THERE
from comfyserverless.host.sampling.methods import KSAMPLER

_OWN_METHODS = (
    "__call__",
    "predict_noise",
    "outer_predict_noise",
    "inner_sample",
    "outer_sample",
    "sample",
    "inner_set_conds",
)
_HERE = tuple(
    getattr(WrappersMP, name)
    for name in vars(WrappersMP)
    if name.isupper() and getattr(WrappersMP, name) not in THERE
)


@dataclass(frozen=True, slots=True)
class Walk:
    """What a guider is asked to sample."""

    noise: Tensor
    latent: Tensor
    sampler: Any
    sigmas: Tensor
    mask: Tensor | None
    callback: Any
    seed: int | None


def reports_only(callback: Any) -> bool:
    """Tell whether a callback does nothing but show progress, which the workers' steps show themselves."""
    return callback is None or getattr(callback, "is_report", False)


def can_run(guider: Any, walk: Walk) -> bool:
    """Tell whether nothing of a pack has to be called here at each step."""
    options = guider.model_options
    wrappers = guider.model_patcher.options_to_send(options)["transformer_options"].get("wrappers", {})
    return (
        is_own(guider)
        and isinstance(walk.sampler, KSAMPLER)
        and walk.sampler.engine_name is not None
        and reports_only(walk.callback)
        and "sampler_calc_cond_batch_function" not in options
        and not any(wrappers.get(kind) for kind in _HERE)
    )


def is_own(guider: Any) -> bool:
    """Tell whether a guider's methods are all ours."""
    from comfyserverless.host.sampling import guiders

    kind = type(guider)
    ours = (guiders.CFGGuider, guiders.ThreeSided)
    if any(name in vars(guider) for name in _OWN_METHODS):
        return False
    return any(all(getattr(kind, name) is getattr(own, name) for name in _OWN_METHODS) for own in ours) and set(
        guider.original_conds
    ) <= {"positive", "negative", "middle"}


def tree_of(guider: Any) -> dict[str, Any] | None:
    """Return a guider of ours as the value of a GUIDER; None for one with methods of a pack."""
    if not is_own(guider):
        return None
    return {
        "kind": "GUIDER",
        "model": guider.model_patcher.ref_with(guider.model_options),
        "positive": to_conditioning(guider.original_conds.get("positive")),
        "negative": to_conditioning(guider.original_conds.get("negative")),
        "cfg": float(guider.cfg),
        "guide": _guide(guider),
    }


def _guide(guider: Any) -> Mapping[str, Any] | None:
    guide = getattr(guider, "guide", None)
    return None if guide is None else {**guide, "middle": to_conditioning(guider.original_conds.get("middle"))}


def run(guider: Any, walk: Walk) -> Tensor:
    """Return what the walk gives; a callback that keeps the last estimate (`x0_output`) gets it."""
    tree = tree_of(guider)
    assert tree is not None, "can_run was asked"
    guider.model_patcher.pre_run()
    try:
        samples, estimate = run_node(
            "HostSample",
            **{name: tree[name] for name in ("model", "positive", "negative", "cfg", "guide")},
            noise=walk.noise,
            seed=walk.seed or 0,
            sampler=walk.sampler.engine_name,
            options=dict(walk.sampler.extra_options),
            sigmas=walk.sigmas.detach().float().cpu(),
            latent={"samples": walk.latent, **({} if walk.mask is None else {"noise_mask": walk.mask})},
        )
    finally:
        guider.model_patcher.cleanup()
    _keep_estimate(guider, walk.callback, estimate)
    result: Tensor = samples.to(torch.float32)
    return result


def _keep_estimate(guider: Any, callback: Any, estimate: Tensor | None) -> None:
    kept = getattr(callback, "x0_output", None)
    if kept is not None and estimate is not None:
        kept["x0"] = guider.model_patcher.model.process_latent_in(estimate)
