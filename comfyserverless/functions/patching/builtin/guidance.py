"""Change how the estimates of positive and negative are put together.

In the arguments of these functions `cond` and `uncond` are noise (x minus the estimate), the `_denoised` ones
estimates of the clean latent, all [B, C, h, w].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.patching.builtin.spectrum import scale_low_frequencies
from comfyserverless.functions.patching.options import MEMORY, OptionsBuilder

Arguments = Mapping[str, Any]

_EACH = (1, 2, 3)
"""All dimensions of an item."""


def rescale_cfg(builder: OptionsBuilder, multiplier: float) -> None:
    """Give guided velocities the spread of the positive's, and mix them in by `multiplier`.

    Lin et al. 2023, Common Diffusion Noise Schedules and Sample Steps are Flawed, section 3.4, equations 14 to
    16.
    """

    def guide(args: Arguments) -> Tensor:
        noisy, scale = args["input"], args["cond_scale"]
        sigma = args["sigma"].reshape(-1, 1, 1, 1)
        variance = sigma * sigma + 1.0
        x = noisy / variance
        positive, negative = (
            ((x - (noisy - noise)) * variance**0.5) / sigma for noise in (args["cond"], args["uncond"])
        )
        guided = negative + scale * (positive - negative)
        spread = torch.std(positive, dim=_EACH, keepdim=True) / torch.std(guided, dim=_EACH, keepdim=True)
        mixed = multiplier * (guided * spread) + (1.0 - multiplier) * guided
        result: Tensor = noisy - (x - mixed * sigma / variance**0.5)
        return result

    builder.set("sampler_cfg_function", guide)


def project_guidance(builder: OptionsBuilder, eta: float, norm_threshold: float, momentum: float) -> None:
    """Weaken the part of guidance that is parallel to the positive, limit its norm, and give it momentum.

    Sadat et al. 2024, Eliminating Oversaturation and Artifacts of High Guidance Scales (arXiv 2410.02416),
    algorithm 1. The running average begins anew where noise goes up, as it does at the start of a walk.
    """
    place = f"apg {builder.number}"

    def before(args: Arguments) -> list[Tensor]:
        outputs = args["conds_out"]
        if len(outputs) < 2:
            return list(outputs)
        positive, negative, *others = outputs
        kept = args["model_options"][MEMORY].setdefault(place, {})
        sigma = float(args["sigma"][0])
        if sigma > kept.get("sigma", sigma):
            kept.pop("average", None)
        kept["sigma"] = sigma
        guidance = positive - negative
        if momentum != 0:
            average = kept.get("average")
            if average is not None and average.shape != guidance.shape:
                raise PromptError(
                    f"APG averages guidance over steps, but this sampler goes from latents of {_size(average)}"
                    f" to {_size(guidance)} cells; allowed: a momentum of 0, or samplers that keep the size"
                )
            guidance = guidance if average is None else momentum * average + guidance
            kept["average"] = guidance
        if norm_threshold > 0:
            norm = guidance.norm(p=2, dim=[-1, -2, -3], keepdim=True)
            guidance = guidance * torch.minimum(torch.ones_like(norm), norm_threshold / norm)
        parallel, orthogonal = _project(guidance, positive)
        modified = orthogonal + eta * parallel
        return [negative + modified + (positive - negative) / args["cond_scale"], negative, *others]

    builder.append("sampler_pre_cfg_function", before)


def _size(x: Tensor) -> str:
    return f"{x.shape[-1]} x {x.shape[-2]}"


def _project(vector: Tensor, onto: Tensor) -> tuple[Tensor, Tensor]:
    """Split an item's vector into its parts parallel and orthogonal to another."""
    direction = torch.nn.functional.normalize(onto, dim=[-1, -2, -3])  # type: ignore[arg-type]
    parallel = (vector * direction).sum(dim=[-1, -2, -3], keepdim=True) * direction
    return parallel, vector - parallel


def limit_norm(builder: OptionsBuilder, strength: float) -> None:
    """Scale guided channel vectors down to the norm of the positive's, cell by cell."""

    def after(args: Arguments) -> Tensor:
        guided: Tensor = args["denoised"]
        wanted, norm = (torch.norm(each, dim=1, keepdim=True) for each in (args["cond_denoised"], guided))
        result: Tensor = guided * (wanted / (norm + 1e-8)).clamp(min=0.0, max=1.0) * strength
        return result

    builder.append("sampler_post_cfg_function", after)


def scale_negative(builder: OptionsBuilder) -> None:
    """Scale the negative so that it lies nearest to the positive (Fan et al. 2025, CFG-Zero*, equation 12)."""

    def after(args: Arguments) -> Tensor:
        x, positive, negative = args["input"], args["cond_denoised"], args["uncond_denoised"]
        one, other = (x - each for each in (positive, negative))
        flat_one, flat_other = one.reshape(len(one), -1), other.reshape(len(other), -1)
        dot = (flat_one * flat_other).sum(dim=1, keepdim=True)
        share = dot / ((flat_other**2).sum(dim=1, keepdim=True) + 1e-8)
        alpha = share.reshape(-1, 1, 1, 1)
        guided: Tensor = args["denoised"] + negative * (alpha - 1.0)
        result: Tensor = guided + args["cond_scale"] * negative * (1.0 - alpha)
        return result

    builder.append("sampler_post_cfg_function", after)


def mix_directions(builder: OptionsBuilder) -> None:
    """Mix the guided estimate with the scaled positive, by how alike both are (Mahiro CFG)."""

    def after(args: Arguments) -> Tensor:
        scale, guided = args["cond_scale"], args["denoised"]
        leap, away = args["cond_denoised"] * scale, args["uncond_denoised"] * scale
        likeness = torch.nn.functional.cosine_similarity(_root(away), _root((leap + guided) / 2)).mean()
        weight = 2 * (likeness + 1)
        mixed: Tensor = (weight * guided + (4 - weight) * leap) / 4
        return mixed

    builder.append("sampler_post_cfg_function", after)


def _root(x: Tensor) -> Tensor:
    return torch.sqrt(x.abs()) * x.sign()


def damp_tangents(builder: OptionsBuilder) -> None:
    """Keep of the negative's score what lies along the main direction of both (Kwon et al. 2025, TCFG)."""

    def before(args: Arguments) -> list[Tensor]:
        outputs = list(args["conds_out"])
        if len(outputs) < 2 or None in args["conds"][:2]:
            return outputs
        x, (positive, negative, *others) = args["input"], outputs
        scores = [(x - each).reshape(len(x), 1, -1).float() for each in (negative, positive)]
        main = torch.linalg.svd(torch.cat(scores, dim=1), full_matrices=False)[2][:, :1]
        damped = (scores[0] @ main.transpose(-2, -1)) * main
        return [positive, x - damped.reshape(negative.shape).to(negative), *others]

    builder.append("sampler_pre_cfg_function", before)


def scale_frequencies(builder: OptionsBuilder, scale_low: float, scale_high: float, freq_cutoff: int) -> None:
    """Scale low and high frequencies of guidance apart (Huang et al. 2025, FreSca, section 3)."""

    def before(args: Arguments) -> list[Tensor]:
        outputs = list(args["conds_out"])
        if len(outputs) < 2 or None in args["conds"][:2]:
            return outputs
        positive, negative, *others = outputs
        guidance = scale_low_frequencies(positive - negative, freq_cutoff, scale_low, scale_high)
        return [guidance + negative, negative, *others]

    builder.append("sampler_pre_cfg_function", before)


def renormalize(builder: OptionsBuilder, cfg_trunc: float, renorm_cfg: float) -> None:
    """Limit the norm of guided estimates to `renorm_cfg` times the positive's, and guide below a level only.

    As Lumina-Image 2.0 (Qin et al. 2025, arXiv 2503.21758, section 3.4) truncates and renormalises guidance.
    """

    def guide(args: Arguments) -> Tensor:
        x, positive, negative = args["input"], args["cond_denoised"], args["uncond_denoised"]
        guided: Tensor = positive
        if float(args["timestep"][0]) < cfg_trunc:
            guided = negative + args["cond_scale"] * (positive - negative)
            if renorm_cfg > 0:
                most = torch.linalg.vector_norm(positive, dim=_EACH, keepdim=True) * renorm_cfg
                norm = torch.linalg.vector_norm(guided, dim=_EACH, keepdim=True)
                guided = torch.where(norm >= most, guided * (most / norm), guided)
        noise: Tensor = x - guided
        return noise

    builder.set("sampler_cfg_function", guide)


def scale_epsilon(builder: OptionsBuilder, scaling_factor: float) -> None:
    """Divide the noise that is predicted (Ning et al. 2023, Elucidating the Exposure Bias, equation 7)."""

    def after(args: Arguments) -> Tensor:
        x: Tensor = args["input"]
        result: Tensor = x - (x - args["denoised"]) / scaling_factor
        return result

    builder.append("sampler_post_cfg_function", after)


def linear_over_batch(builder: OptionsBuilder, min_cfg: float) -> None:
    """Guide the first item of a batch by `min_cfg`, the last one by the sampler's scale, and evenly between."""

    def guide(args: Arguments) -> Tensor:
        shares = torch.linspace(0.0, 1.0, args["cond"].shape[0], device=args["cond"].device)
        return _guide_by_share(args, min_cfg, shares)

    builder.set("sampler_cfg_function", guide)


def triangle_over_batch(builder: OptionsBuilder, min_cfg: float) -> None:
    """Guide both ends of a batch by `min_cfg` and its middle by the sampler's scale."""

    def guide(args: Arguments) -> Tensor:
        values = torch.linspace(0.0, 1.0, args["cond"].shape[0], device=args["cond"].device)
        return _guide_by_share(args, min_cfg, 2 * (values - torch.floor(values + 0.5)).abs())

    builder.set("sampler_cfg_function", guide)


def _guide_by_share(args: Arguments, min_cfg: float, shares: Tensor) -> Tensor:
    scale = (shares * (args["cond_scale"] - min_cfg) + min_cfg).reshape(-1, 1, 1, 1)
    guided: Tensor = args["uncond"] + scale * (args["cond"] - args["uncond"])
    return guided
