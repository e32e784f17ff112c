"""Walk with ER-SDE-Solver, a multistep solver of extended reverse-time SDEs, of order up to 3.

Cui et al. 2023, Elucidating the solution space of extended reverse-time SDE (arXiv 2309.06169): algorithms 1 to
3 (VE-ER-SDE-Solver). lambda is sigma / alpha here, as in the paper; the noise scale function phi chooses the
SDE. The sums that stand for integrals leave a small error of first order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from comfyserverless.sampling.noise import draw_step_noise
from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    begin_noise,
    half_log_snr,
    level_at,
    levels,
)

MAX_STAGE = 3
INTEGRATION_POINTS = 200
"""Points of the sums that stand for the integrals of 1 / phi."""


class ErSde(OneEvaluationSampler):
    """ER-SDE-Solver-3. Options: solver_type, max_stage (3), eta (1), s_noise (1).

    solver_type: `ER-SDE` (phi = x (e^(x^0.3) + 10); eta is not used), `Reverse-time SDE` (phi =
    x^(1 + eta)) or `ODE` (phi = x). state adds `olds`: up to two pairs of an estimate and its slope by lambda,
    newest first.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        solver_type = str(options.get("solver_type", "ER-SDE"))
        state = {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, options),
            "solver_type": solver_type,
            "max_stage": int(options.get("max_stage", MAX_STAGE)),
            "old_denoised": None,
            "old_slope": None,
        }
        if solver_type == "ODE" or (solver_type != "ER-SDE" and state["eta"] == 0):
            state |= {"solver_type": "ODE", "s_noise": 0.0}
        return state

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, this evaluation and its slope, and the noise stream."""
        sigmas, i = levels(state), state["step"]
        if sigmas[i + 1] == 0:
            return {"x": denoised, "old_denoised": denoised}
        lambdas = [level_at(half_log_snr(sigma)) for sigma in sigmas[max(0, i - 2) : i + 2]]
        source, target = lambdas[-2], lambdas[-1]
        alpha, alpha_next = sigmas[i] / source, sigmas[i + 1] / target
        r = _phi(state, target) / _phi(state, source)
        x = alpha_next / alpha * r * state["x"] + alpha_next * (1 - r) * denoised
        added, slope = self._higher_orders(state, denoised, lambdas)
        for factor, difference in added:
            x = x + alpha_next * factor * difference
        changes: SamplerState = {"old_denoised": denoised, "old_slope": slope}
        if state["s_noise"] > 0:
            noise, changes["noise"] = draw_step_noise(state["noise"], x)
            scale = (target**2 - source**2 * r**2).sqrt().nan_to_num(nan=0.0)
            x = x + alpha_next * noise * state["s_noise"] * scale
        return {"x": x, **changes}

    def _higher_orders(
        self, state: SamplerState, denoised: Tensor, lambdas: Sequence[Tensor]
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        """Return the terms beyond the first order, as (factor, difference), and the first difference.

        lambdas: the levels of up to two steps before, of this one and the next.
        """
        stages = min(state["max_stage"], state["step"] + 1)
        if stages < 2:
            return [], None
        source, target = lambdas[-2], lambdas[-1]
        dt = target - source
        width = -dt / float(INTEGRATION_POINTS)
        points = target + torch.arange(0, INTEGRATION_POINTS, dtype=source.dtype) * width
        scaled = _phi(state, points)
        slope = (denoised - state["old_denoised"]) / (source - lambdas[-3])
        terms = [(dt + torch.sum(1 / scaled) * width * _phi(state, target), slope)]
        if stages >= 3:
            curvature = (slope - state["old_slope"]) / ((source - lambdas[-4]) / 2)
            integral = torch.sum((points - source) / scaled) * width
            terms.append(((dt**2) / 2 + integral * _phi(state, target), curvature))
        return terms, slope


def _phi(state: SamplerState, x: Tensor) -> Tensor:
    """Return the noise scale function at a lambda."""
    solver_type = state["solver_type"]
    if solver_type == "ODE":
        return x
    if solver_type == "ER-SDE":
        return x * ((x**0.3).exp() + 10.0)
    scaled: Tensor = x ** (state["eta"] + 1)
    return scaled
