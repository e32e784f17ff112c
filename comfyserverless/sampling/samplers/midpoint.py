"""Walk with midpoint steps: evaluate half-way down in log sigma, and step with what was found there.

In sigma: DPM-Solver-2 of Karras et al. 2022 (arXiv 2206.00364), algorithm 2 without churn, with the midpoint in
log sigma. In lambda: DPM-Solver++(2S) of Lu et al. 2022 (arXiv 2211.01095), algorithm 1, with r = 1/2, whose
exponential step is exact for the linear part; and its SDE form, with Brownian noise.
"""

from __future__ import annotations

from torch import Tensor

from comfyserverless.sampling.noise import begin_brownian, brownian_increment, draw_step_noise
from comfyserverless.sampling.samplers.base import (
    SamplerOptions,
    SamplerState,
    StagedSampler,
    UncondSampler,
    ancestral_levels,
    ask,
    begin_noise,
    derivative,
    finish,
    half_log_snr,
    level,
    level_at,
    levels,
)

R = 0.5
"""Where the second evaluation lies between two levels, in log sigma."""


def _middle(sigma: Tensor, sigma_next: Tensor) -> Tensor:
    return sigma.log().lerp(sigma_next.log(), R).exp()


def _lambda_middle(sigma: Tensor, sigma_next: Tensor, r: float = R) -> Tensor:
    lambda_s = half_log_snr(sigma)
    return lambda_s + r * (half_log_snr(sigma_next) - lambda_s)


class Dpm2(StagedSampler):
    """Step with the slope of the midpoint; the step to level 0 stays first-order."""

    discards_penultimate_sigma = True

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Go half-way along the tangent, or take the step with the slope found there."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        if state["stage"] == 0:
            d = derivative(x, sigmas[i], denoised)
            if sigmas[i + 1] == 0:
                return finish(state, x + d * (sigmas[i + 1] - sigmas[i]))
            sigma_mid = _middle(sigmas[i], sigmas[i + 1])
            return ask(state, x + d * (sigma_mid - sigmas[i]), sigma_mid)
        x_2, sigma_mid = self.query(state)
        return finish(state, x + derivative(x_2, sigma_mid, denoised) * (sigmas[i + 1] - sigmas[i]))

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the middle of a step that does not end at level 0."""
        return [] if sigmas[step + 1] == 0 else [_middle(sigmas[step], sigmas[step + 1])]


class _AncestralMidpoint(StagedSampler):
    """A midpoint step below the next level, and back to it with fresh noise. Options: eta (1), s_noise (1)."""

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {**super().begin(x, sigmas, seed, options), **begin_noise(x, seed, options)}

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the middle between a level and the one that is stepped down to, if that is above 0."""
        eta = float(options.get("eta", 1.0))
        sigma_down, _ = ancestral_levels(sigmas[step], sigmas[step + 1], eta)
        return [] if sigma_down == 0 else [self.middle(sigmas[step], sigma_down)]

    def middle(self, sigma: Tensor, sigma_down: Tensor) -> Tensor:
        """Return the level of the second evaluation."""
        return _middle(sigma, sigma_down)


def _finish_noised(state: SamplerState, x: Tensor, sigma_up: Tensor) -> SamplerState:
    noise, stream = draw_step_noise(state["noise"], x)
    return finish(state, x + noise * state["s_noise"] * sigma_up, noise=stream)


class Dpm2Ancestral(_AncestralMidpoint):
    """DPM-Solver-2 with ancestral noise (Ho et al. 2020, equation 7)."""

    discards_penultimate_sigma = True

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Go half-way along the tangent, or take the step and add noise."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, sigma_up = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if state["stage"] == 0:
            d = derivative(x, sigmas[i], denoised)
            if sigma_down == 0:
                return finish(state, x + d * (sigma_down - sigmas[i]))
            sigma_mid = self.middle(sigmas[i], sigma_down)
            return ask(state, x + d * (sigma_mid - sigmas[i]), sigma_mid)
        x_2, sigma_mid = self.query(state)
        x = x + derivative(x_2, sigma_mid, denoised) * (sigma_down - sigmas[i])
        return _finish_noised(state, x, sigma_up)


class Dpmpp2SAncestral(_AncestralMidpoint):
    """DPM-Solver++(2S) with ancestral noise (Ho et al. 2020, equation 7)."""

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Go half-way in lambda, or take the step with the estimate found there and add noise."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, sigma_up = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if sigma_down == 0:
            return finish(state, x + derivative(x, sigmas[i], denoised) * (sigma_down - sigmas[i]))
        return self._half_or_whole(state, x, denoised, (sigma_down, sigma_up))

    def middle(self, sigma: Tensor, sigma_down: Tensor) -> Tensor:
        """Return the level of the second evaluation."""
        return level_at(_lambda_middle(sigma, sigma_down))

    def _half_or_whole(
        self, state: SamplerState, x: Tensor, denoised: Tensor, split: tuple[Tensor, Tensor]
    ) -> SamplerState:
        """Take one of the two exponential steps from x (algorithm 1, lines 3 and 5)."""
        sigma_down, sigma_up = split
        t, t_next = half_log_snr(levels(state)[state["step"]]), half_log_snr(sigma_down)
        h = t_next - t
        if state["stage"] == 0:
            sigma_s = level_at(t + R * h)
            return ask(state, sigma_s / level_at(t) * x - (-h * R).expm1() * denoised, sigma_s, first=denoised)
        x = (level_at(t_next) / level_at(t)) * x - (-h).expm1() * denoised
        return _finish_noised(state, x, sigma_up)


class Dpmpp2SAncestralCfgPp(UncondSampler, Dpmpp2SAncestral):
    """DPM-Solver++(2S) with ancestral noise and CFG++: the linear part starts from x + D - U.

    D is that of the step's start in both parts, U the newest; so in the second part they belong to different
    levels, and the method does not converge to the ODE. Recorded images depend on it, so it stays.
    """

    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Take one of the two exponential steps, with the noise that the unguided estimate implies."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, sigma_up = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if sigma_down == 0:
            return finish(state, denoised + derivative(x, sigmas[i], uncond) * sigma_down)
        first = state["kept"].get("first", denoised)
        return self._half_or_whole(state, x + (first - uncond), denoised, (sigma_down, sigma_up))


class DpmppSde(StagedSampler):
    """SDE-DPM-Solver++(2S) with Brownian noise. Options: eta (1), s_noise (1), r (R): where the midpoint is.

    on_cpu: noise of the CPU generator, the same on every machine; otherwise of the latent's device. state adds
    `noise`: what repeats the Brownian motion.
    """

    def __init__(self, on_cpu: bool = True) -> None:
        self.on_cpu = on_cpu

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with what repeats the Brownian motion."""
        return {
            **super().begin(x, sigmas, seed, options),
            "eta": float(options.get("eta", 1.0)),
            "s_noise": float(options.get("s_noise", 1.0)),
            "r": float(options.get("r", R)),
            "noise": begin_brownian(x, sigmas, seed, self.on_cpu),
        }

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Go to the midpoint in lambda, or take the step with a mixture of both estimates."""
        sigmas, i = levels(state), state["step"]
        if state["stage"] == 0:
            if sigmas[i + 1] == 0:
                return finish(state, denoised)
            lambda_mid = _lambda_middle(sigmas[i], sigmas[i + 1], state["r"])
            x_2 = self._jump(state, level_at(lambda_mid), lambda_mid, denoised)
            return ask(state, x_2, level_at(lambda_mid), denoised=denoised)
        fac = 1 / (2 * state["r"])
        estimate = (1 - fac) * state["kept"]["denoised"] + fac * denoised
        return finish(state, self._jump(state, sigmas[i + 1], half_log_snr(sigmas[i + 1]), estimate))

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the middle in lambda of a step that does not end at level 0."""
        if sigmas[step + 1] == 0:
            return []
        return [level_at(_lambda_middle(sigmas[step], sigmas[step + 1], float(options.get("r", R))))]

    def _jump(self, state: SamplerState, sigma_to: Tensor, lambda_t: Tensor, estimate: Tensor) -> Tensor:
        """Return the latent at a lower level: an exponential step below it, and noise back up to it."""
        x: Tensor = state["x"]
        eta: float = state["eta"]
        sigma = level(state, state["sigmas"][state["step"]])
        lambda_s = half_log_snr(sigma)
        alpha_s, alpha_t = sigma * lambda_s.exp(), sigma_to * lambda_t.exp()
        sigma_down, sigma_up = ancestral_levels(level_at(lambda_s), level_at(lambda_t), eta)
        h = half_log_snr(sigma_down) - lambda_s
        x = alpha_t / alpha_s * (-h).exp() * x - alpha_t * (-h).expm1() * estimate
        if eta > 0 and state["s_noise"] > 0:
            noise = brownian_increment(state["noise"], sigma, sigma_to, x)
            x = x + alpha_t * noise * state["s_noise"] * sigma_up
        return x
