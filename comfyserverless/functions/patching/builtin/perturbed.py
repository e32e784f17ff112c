"""Guide away from what a weakened network estimates: perturbed attention, and blurred attended parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.patching.options import SCRATCH, OptionsBuilder
from comfyserverless.models.patching.attention import attend

_MIDDLE = ("middle", 0)
_UNCOND = 1
"""The negative's place among the sides of an evaluation."""

_BLUR_CELLS = 9
_LEAST_BLURRED = 4


def perturb_attention(builder: OptionsBuilder, scale: float) -> None:
    """Guide away from what the network estimates if its middle block looks at each cell alone.

    Ahn et al. 2024, Perturbed-Attention Guidance (arXiv 2403.17377), equation 8; self-attention maps become the
    identity, which leaves the values.
    """

    def alone(query: Tensor, key: Tensor, value: Tensor, extra: Mapping[str, Any]) -> Tensor:
        return value

    def after(args: Mapping[str, Any]) -> Tensor:
        guided: Tensor = args["denoised"]
        if scale == 0:
            return guided
        options = with_replacement(args["model_options"], "attn1", _MIDDLE, alone)
        (perturbed,) = args["model"].calc_cond_batch([args["cond"]], args["input"], args["sigma"], options)
        result: Tensor = guided + (args["cond_denoised"] - perturbed) * scale
        return result

    builder.append("sampler_post_cfg_function", after)


def with_replacement(
    model_options: Mapping[str, Any], attention: str, block: tuple[str | int, ...], function: Callable[..., Any]
) -> dict[str, Any]:
    """Return model_options with a function in place of an attention of a block; the given ones are not
    changed.
    """
    inner = dict(model_options.get("transformer_options", {}))
    replaced = dict(inner.get("patches_replace", {}))
    replaced[attention] = {**replaced.get(attention, {}), block: function}
    inner["patches_replace"] = replaced
    return {**model_options, "transformer_options": inner}


def blur_attended(builder: OptionsBuilder, scale: float, blur_sigma: float, threshold: float = 1.0) -> None:
    """Guide away from what the network makes of its estimate with the parts blurred that it attends to.

    Hong et al. 2023, Improving Sample Quality of Diffusion Models Using Self-Attention Guidance (arXiv
    2210.00939), algorithm 1. The parts are those whose cells receive more than `threshold` of the middle
    block's attention.
    """
    place = f"sag {builder.number}"

    def record(query: Tensor, key: Tensor, value: Tensor, extra: Mapping[str, Any]) -> Tensor:
        heads, sides = extra["n_heads"], extra["cond_or_uncond"]
        if _UNCOND not in sides:
            return attend(query, key, value, heads)
        result, received = attend_and_see(query, key, value, heads)
        count = query.shape[0] // len(sides)
        at = sides.index(_UNCOND) * count
        extra[SCRATCH][place] = received[at : at + count].reshape(count, 1, *extra["activations_shape"][-2:])
        return result

    def after(args: Mapping[str, Any]) -> Tensor:
        guided, x, negative = args["denoised"], args["input"], args["uncond_denoised"]
        received = args["model_options"]["transformer_options"][SCRATCH].get(place)
        if received is None or min(guided.shape[2:]) <= _LEAST_BLURRED:
            return guided  # type: ignore[no-any-return]
        mask = functional.interpolate((received > threshold).to(negative), negative.shape[-2:])
        degraded = gaussian_blur(negative, blur_sigma) * mask + negative * (1 - mask)
        noised = degraded + x - negative
        (estimate,) = args["model"].calc_cond_batch(
            [args["uncond"]], noised, args["sigma"], args["model_options"]
        )
        result: Tensor = guided + (degraded - estimate) * scale
        return result

    replaced = {"transformer_options": {"patches_replace": {"attn1": {(*_MIDDLE, 0): record}}}}
    builder.merge(replaced)
    builder.append("sampler_post_cfg_function", after)
    builder.set("disable_cfg1_optimization", True)


def attend_and_see(query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return attention, and how much each cell receives from all cells: [N, cells], mean over heads."""
    count, _, width = query.shape
    q, k, v = (part.reshape(count, -1, heads, width // heads).transpose(1, 2) for part in (query, key, value))
    shares = ((q @ k.transpose(-2, -1)) * (width // heads) ** -0.5).softmax(dim=-1)
    result = (shares.to(v) @ v).transpose(1, 2).reshape(count, -1, width)
    return result, shares.mean(1).sum(1)


def gaussian_blur(x: Tensor, sigma: float) -> Tensor:
    """Return x blurred by a Gaussian over 9 x 9 cells, mirrored at the borders; sigma: in cells."""
    if sigma == 0:
        return x
    half = _BLUR_CELLS // 2
    places = torch.linspace(-half, half, _BLUR_CELLS)
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    weights = weights / weights.sum()
    kernel = (weights[:, None] * weights[None, :]).to(x).expand(x.shape[1], 1, -1, -1)
    return functional.conv2d(functional.pad(x, (half,) * 4, mode="reflect"), kernel, groups=x.shape[1])


def skip_layers(builder: OptionsBuilder, **settings: Any) -> None:
    """Raise PromptError: a U-Net has no such layers."""
    raise PromptError(
        f"skip layer guidance leaves out layers of transformers; this {builder.facts.family} model is a U-Net"
    )
