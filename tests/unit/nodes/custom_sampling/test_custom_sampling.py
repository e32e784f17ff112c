"""Custom sampling: the parts that are put together, and what the sampler is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output
from comfyserverless.nodes.custom_sampling import kinds
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import MODEL, lower, output

SAMPLES, SIGMAS = tensor("s", 1, 4, 8, 8), tensor("sigmas", 5)


def cond(name: str) -> list[Any]:
    return [[tensor(name, 1, 77, 8), {}]]


def context(*steps: int) -> FakeContext:
    evaluations = [{"step": step, "last_of_step": True, "controls": [], "branches": None} for step in steps]
    plan = {"steps": len(steps), "maximum": len(steps), "is_dynamic": False, "evaluations": evaluations}
    return FakeContext(results={"sample.begin": {"plan": plan}})


async def advanced(ctx: FakeContext, guider: Any, **more: Any) -> Any:
    inputs = {
        "noise": kinds.noise(9),
        "guider": guider,
        "sampler": kinds.sampler("euler", eta=0.5),
        "sigmas": SIGMAS,
        "latent_image": {"samples": SAMPLES},
        **more,
    }
    return await lower("SamplerCustomAdvanced", ctx, **inputs)


async def test_sampler_walks_the_given_levels_and_gives_its_estimate_out() -> None:
    ctx = context(0, 1)
    guider = await output("CFGGuider", model=MODEL, positive=cond("p"), negative=cond("n"), cfg=5.0)
    result = await advanced(ctx, guider)
    begin, *_, end = ctx.calls
    assert ctx.functions() == ["sample.begin", "denoise.step", "denoise.step", "sample.end"]
    wanted = {
        "seed": 9,
        "sampler": "euler",
        "options": {"eta": 0.5},
        "sigmas": SIGMAS,
        "cfg": 5.0,
        "guide": None,
    }
    assert {name: begin.inputs[name] for name in wanted} == wanted
    assert begin.inputs["add_noise"] is begin.inputs["keeps_estimate"] is True
    assert result.outputs == (
        {"samples": Output(end.id, "samples")},
        {"samples": Output(end.id, "estimate")},
    )


async def test_walk_without_steps_gives_the_latent_twice() -> None:
    ctx = context()
    guider = await output("BasicGuider", model=MODEL, conditioning=cond("p"))
    result = await advanced(ctx, guider, noise=kinds.noise(None))
    assert result.outputs[0] == result.outputs[1]
    assert (ctx.calls[0].inputs["negative"], ctx.calls[0].inputs["cfg"]) == ([], 1.0)
    assert (ctx.calls[0].inputs["add_noise"], ctx.calls[0].inputs["seed"]) == (False, 0)


async def test_dual_guider_has_a_middle() -> None:
    guider = await output(
        "DualCFGGuider",
        model=MODEL,
        cond1=cond("p"),
        cond2=cond("m"),
        negative=cond("n"),
        cfg_conds=5.0,
        cfg_cond2_negative=3.0,
        style="nested",
    )
    ctx = context(0)
    await advanced(ctx, guider)
    expected = {"mode": "dual_nested", "middle": cond("m"), "scale": 3.0}
    assert [call.inputs.get("guide", expected) for call in ctx.calls] == [expected] * 3


async def test_split_guidance_leaves_guiders_with_a_middle_together() -> None:
    ctx = context(0)
    ctx.split_guidance = "on"
    given = {"model": MODEL, "positive": cond("p"), "negative": cond("n"), "empty_conditioning": cond("e")}
    guider = await output("PerpNegGuider", cfg=5.0, neg_scale=0.5, **given)
    await advanced(ctx, guider)
    assert "denoise.negative" not in ctx.functions()


async def test_sampler_custom_keeps_its_seed_without_noise() -> None:
    ctx = context(0)
    await lower(
        "SamplerCustom",
        ctx,
        model=MODEL,
        add_noise=False,
        noise_seed=11,
        cfg=6.0,
        positive=cond("p"),
        negative=cond("n"),
        sampler=kinds.sampler("dpmpp_2m"),
        sigmas=SIGMAS,
        latent_image={"samples": SAMPLES},
    )
    assert (ctx.calls[0].inputs["seed"], ctx.calls[0].inputs["add_noise"]) == (11, False)


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("KSamplerSelect", {"sampler_name": "heun"}, ("heun", {})),
        ("SamplerLMS", {"order": 3}, ("lms", {"order": 3})),
        ("SamplerEulerCFGpp", {"version": "regular"}, ("euler_cfg_pp", {})),
        ("SamplerEulerCFGpp", {"version": "alternative"}, ("euler_cfg_pp", {"is_alternative": True})),
        (
            "SamplerLCMUpscale",
            {"scale_ratio": 2.0, "scale_steps": -1, "upscale_method": "area"},
            ("lcm", {"upscale": {"ratio": 2.0, "steps": -1, "method": "area"}}),
        ),
        (
            "SamplerDPMPP_2M_SDE",
            {"solver_type": "heun", "eta": 1.0, "s_noise": 0.5, "noise_device": "gpu"},
            ("dpmpp_2m_sde_heun_gpu", {"eta": 1.0, "s_noise": 0.5}),
        ),
        (
            "SamplerDPMPP_SDE",
            {"eta": 1.0, "s_noise": 0.5, "r": 0.4, "noise_device": "cpu"},
            ("dpmpp_sde", {"eta": 1.0, "s_noise": 0.5, "r": 0.4}),
        ),
    ],
)
async def test_samplers_take_the_settings_of_their_family(
    name: str, inputs: dict[str, Any], expected: tuple[str, dict[str, Any]]
) -> None:
    chosen = await output(name, **inputs)
    assert (chosen["name"], chosen["options"]) == expected


async def test_sa_solver_limits_its_noise_by_shares_of_the_way() -> None:
    chosen = await output(
        "SamplerSASolver",
        model=MODEL,
        eta=1.0,
        sde_start_percent=0.1,
        sde_end_percent=0.9,
        s_noise=1.0,
        predictor_order=3,
        corrector_order=4,
        use_pece=True,
        simple_order_2=False,
    )
    assert chosen["name"] == "sa_solver_pece"
    assert chosen["options"]["shares"] == {"start_sigma": 0.1, "end_sigma": 0.9}


async def test_split_by_strength_counts_steps_from_the_end() -> None:
    ctx = FakeContext()
    await lower("SplitSigmasDenoise", ctx, sigmas=tensor("sigmas", 11), denoise=0.6)
    assert ctx.calls[0].inputs["step"] == 4


@pytest.mark.parametrize(
    ("text", "levels"), [("1, 0.5", [1.0, 0.5]), ("14.6 7e x .25,0", [14.6, 7.0, 0.25, 0.0]), ("", [])]
)
async def test_written_levels_are_the_numbers_of_the_text(text: str, levels: list[float]) -> None:
    ctx = FakeContext()
    await output("ManualSigmas", ctx, sigmas=text)
    assert ctx.calls[0].inputs["sigmas"] == levels


@pytest.mark.parametrize("value", [None, "euler", {"samples": SAMPLES}, kinds.noise(1)])
async def test_wrong_part_is_a_clear_error(value: Any) -> None:
    with pytest.raises(PromptError, match="Input 'sampler' takes a SAMPLER, but got"):
        await advanced(context(0), kinds.guider(MODEL, cond("p"), [], 1.0), sampler=value)
