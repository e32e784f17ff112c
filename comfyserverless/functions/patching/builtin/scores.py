"""Change how strongly the estimate goes to where data is likely, by the level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.patching.options import OptionsBuilder
from comfyserverless.sampling.samplers.base import half_log_snr


def rescale_score(builder: OptionsBuilder, tsr_k: float, tsr_sigma: float) -> None:
    """Rescale the predicted noise by the level (Temporal Score Rescaling, arXiv 2510.01184, equation 6).

    tsr_k: what the noise is multiplied by where little of it is left, 1 changes nothing; tsr_sigma: the spread
    of the data that it is meant for, larger ones act earlier.
    """

    def after(args: Mapping[str, Any]) -> Tensor:
        denoised: Tensor = args["denoised"]
        x, sigma = args["input"], args["sigma"][0]
        if tsr_k == 1 or sigma == 0:
            return denoised
        half = half_log_snr(sigma)
        snr = (2 * half).exp()
        if snr == 0:
            return denoised
        ratio = (snr * tsr_sigma**2 + 1) / (snr * tsr_sigma**2 / tsr_k + 1)
        rescaled: Tensor = torch.lerp(
            x / (sigma * half.exp()), denoised, torch.where(snr.isposinf(), tsr_k, ratio)
        )
        return rescaled

    builder.append("sampler_post_cfg_function", after)
