"""Name the model patches that come with the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from comfyserverless.functions.patching.builtin import (
    attention,
    features,
    guidance,
    perturbed,
    processes,
    scores,
)
from comfyserverless.functions.patching.builtin.operations import apply_operation

BUILDERS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "rescale_cfg": guidance.rescale_cfg,
        "apg": guidance.project_guidance,
        "cfg_norm": guidance.limit_norm,
        "cfg_zero_star": guidance.scale_negative,
        "mahiro": guidance.mix_directions,
        "tcfg": guidance.damp_tangents,
        "fresca": guidance.scale_frequencies,
        "renorm_cfg": guidance.renormalize,
        "epsilon_scaling": guidance.scale_epsilon,
        "rescale_score": scores.rescale_score,
        "video_linear_cfg": guidance.linear_over_batch,
        "video_triangle_cfg": guidance.triangle_over_batch,
        "latent_operation": apply_operation,
        "freeu": features.free_u,
        "freeu_v2": features.free_u_v2,
        "downscale": features.shrink_deep_blocks,
        "pag": perturbed.perturb_attention,
        "sag": perturbed.blur_attended,
        "skip_layers": perturbed.skip_layers,
        "hypertile": attention.tile,
        "tome": attention.merge_tokens,
        "multiply_attention": attention.multiply,
        "model_sampling_discrete": processes.discrete,
        "model_sampling_edm": processes.edm,
        "model_sampling_v": processes.velocity,
    }
)
"""Builders by patch name: each takes an OptionsBuilder and the patch's arguments by name."""
