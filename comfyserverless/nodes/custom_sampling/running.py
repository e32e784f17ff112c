"""Choose noise and guidance, and run a sampler over given levels."""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.custom_sampling import kinds
from comfyserverless.nodes.sampling import guide_by, run_sampler
from comfyserverless.nodes.specs import choice, number, seed, socket, switch
from comfyserverless.nodes.taking import Inputs, take_conditioning, take_latent, take_model, take_tensor

_MODULE = "comfy_extras.nodes_custom_sampler"


async def _random_noise(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((kinds.noise(inputs["noise_seed"]),))


async def _no_noise(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((kinds.noise(None),))


async def _basic_guider(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Follow one conditioning; without a negative side there is nothing to guide away from."""
    return NodeResult((kinds.guider(take_model(inputs), take_conditioning(inputs, "conditioning"), [], 1.0),))


async def _cfg_guider(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((_guide_by_cfg(inputs),))


def _guide_by_cfg(inputs: Inputs, guide: Mapping[str, Value] | None = None) -> dict[str, Value]:
    positive, negative = take_conditioning(inputs, "positive"), take_conditioning(inputs, "negative")
    return kinds.guider(take_model(inputs), positive, negative, inputs["cfg"], guide)


async def _dual_guider(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    guide = {
        "mode": "dual_nested" if inputs["style"] == "nested" else "dual",
        "middle": take_conditioning(inputs, "cond2"),
        "scale": inputs["cfg_cond2_negative"],
    }
    positive, negative = take_conditioning(inputs, "cond1"), take_conditioning(inputs, "negative")
    return NodeResult((kinds.guider(take_model(inputs), positive, negative, inputs["cfg_conds"], guide),))


async def _perp_neg_guider(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    empty = take_conditioning(inputs, "empty_conditioning")
    guide = {"mode": "perp_neg", "middle": empty, "scale": inputs["neg_scale"]}
    return NodeResult((_guide_by_cfg(inputs, guide),))


async def _sample(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Run a sampler; seed of its own noise: the one of the noise, 0 without noise."""
    start = kinds.take(inputs, "noise", "NOISE")["seed"]
    guider = kinds.take(inputs, "guider", "GUIDER")
    return await _run(ctx, inputs, guider, start or 0, adds_noise=start is not None)


async def _sample_with_cfg(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return await _run(ctx, inputs, _guide_by_cfg(inputs), inputs["noise_seed"], adds_noise=inputs["add_noise"])


async def _run(
    ctx: LoweringContext, inputs: Inputs, guider: Mapping[str, Value], start: int, *, adds_noise: bool
) -> NodeResult:
    latent = take_latent(inputs, "latent_image")
    sampler = kinds.take(inputs, "sampler", "SAMPLER")
    guided = guide_by(
        ctx, guider["model"], guider["positive"], guider["negative"], guider["cfg"], guider["guide"]
    )
    end, has_steps = await run_sampler(
        ctx,
        guided,
        latent,
        seed=start,
        sampler=sampler["name"],
        options=sampler["options"],
        sigmas=take_tensor(inputs, "sigmas", "SIGMAS"),
        add_noise=adds_noise,
        keeps_estimate=True,
        **UNUSED_PORTS,
    )
    samples = {**latent, "samples": end.out("samples")}
    return NodeResult((samples, {**latent, "samples": end.out("estimate")} if has_steps else samples))


UNUSED_PORTS: Mapping[str, Value] = {
    "scheduler": "",
    "steps": 0,
    "denoise": 1.0,
    "start_step": None,
    "last_step": None,
    "force_full_denoise": False,
}
"""Ports of sample.begin that say nothing where the levels are given."""


async def _add_noise(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent = take_latent(inputs, "latent_image")
    noisy = ctx.emit(
        "latent.noise",
        model=take_model(inputs),
        samples=latent["samples"],
        batch_index=latent.get("batch_index"),
        sigmas=take_tensor(inputs, "sigmas", "SIGMAS"),
        seed=kinds.take(inputs, "noise", "NOISE")["seed"],
    )
    return NodeResult(({**latent, "samples": noisy.out("samples")},))


def _cfg(name: str) -> InputSpec:
    return number(name, 8.0, 0.0, 100.0, step=0.1, round=0.01)


_GUIDERS = "sampling/custom_sampling/guiders"
_RESULTS = (OutputSpec("LATENT", "output"), OutputSpec("LATENT", "denoised_output"))

NODES = (
    NodeDeclaration(
        name="RandomNoise",
        category="sampling/custom_sampling/noise",
        python_module=_MODULE,
        lower=_random_noise,
        inputs=(seed("noise_seed"),),
        outputs=(OutputSpec("NOISE"),),
    ),
    NodeDeclaration(
        name="DisableNoise",
        category="sampling/custom_sampling/noise",
        python_module=_MODULE,
        lower=_no_noise,
        inputs=(),
        outputs=(OutputSpec("NOISE"),),
    ),
    NodeDeclaration(
        name="BasicGuider",
        category=_GUIDERS,
        python_module=_MODULE,
        lower=_basic_guider,
        inputs=(socket("model", "MODEL"), socket("conditioning", "CONDITIONING")),
        outputs=(OutputSpec("GUIDER"),),
    ),
    NodeDeclaration(
        name="CFGGuider",
        category=_GUIDERS,
        python_module=_MODULE,
        lower=_cfg_guider,
        inputs=(
            socket("model", "MODEL"),
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            _cfg("cfg"),
        ),
        outputs=(OutputSpec("GUIDER"),),
    ),
    NodeDeclaration(
        name="DualCFGGuider",
        category=_GUIDERS,
        python_module=_MODULE,
        lower=_dual_guider,
        inputs=(
            socket("model", "MODEL"),
            socket("cond1", "CONDITIONING"),
            socket("cond2", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            _cfg("cfg_conds"),
            _cfg("cfg_cond2_negative"),
            choice("style", ("regular", "nested")),
        ),
        outputs=(OutputSpec("GUIDER"),),
    ),
    NodeDeclaration(
        name="PerpNegGuider",
        category="_for_testing",
        python_module="comfy_extras.nodes_perpneg",
        experimental=True,
        lower=_perp_neg_guider,
        inputs=(
            socket("model", "MODEL"),
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            socket("empty_conditioning", "CONDITIONING"),
            _cfg("cfg"),
            number("neg_scale", 1.0, 0.0, 100.0, step=0.01),
        ),
        outputs=(OutputSpec("GUIDER"),),
    ),
    NodeDeclaration(
        name="SamplerCustom",
        category="sampling/custom_sampling",
        python_module=_MODULE,
        lower=_sample_with_cfg,
        inputs=(
            socket("model", "MODEL"),
            switch("add_noise", True),
            seed("noise_seed"),
            _cfg("cfg"),
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            socket("sampler", "SAMPLER"),
            socket("sigmas", "SIGMAS"),
            socket("latent_image", "LATENT"),
        ),
        outputs=_RESULTS,
    ),
    NodeDeclaration(
        name="SamplerCustomAdvanced",
        category="sampling/custom_sampling",
        python_module=_MODULE,
        lower=_sample,
        inputs=(
            socket("noise", "NOISE"),
            socket("guider", "GUIDER"),
            socket("sampler", "SAMPLER"),
            socket("sigmas", "SIGMAS"),
            socket("latent_image", "LATENT"),
        ),
        outputs=_RESULTS,
    ),
    NodeDeclaration(
        name="AddNoise",
        category="_for_testing/custom_sampling/noise",
        python_module=_MODULE,
        experimental=True,
        lower=_add_noise,
        inputs=(
            socket("model", "MODEL"),
            socket("noise", "NOISE"),
            socket("sigmas", "SIGMAS"),
            socket("latent_image", "LATENT"),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
