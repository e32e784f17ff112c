"""Call points around the network: who is called with what, and that doing nothing changes no bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError, WorkerError
from comfyserverless.core.values import ModelRef, Patch
from tests.support.analytic_models import FACTS, MODEL, AnalyticPool, conditioning
from tests.unit.functions.patching.live import Patched, patched
from tests.unit.functions.test_denoising import application, control, guided, step
from tests.unit.functions.test_sample import IMAGE, begin

__all__ = ["patched"]

BATCH = torch.cat([IMAGE, -IMAGE])
PAIR = ("positive", "negative")


def start(model: ModelRef, **changes: Any) -> dict[str, Any]:
    given = {"model": model, "latent": {"samples": BATCH}, "positive": conditioning(1.0), **changes}
    state: dict[str, Any] = begin(**{"negative": conditioning(0.5), **given})["state"]
    return state


def after_step(model: ModelRef, pool: AnalyticPool | None = None, **changes: Any) -> Tensor:
    """Return the latent after one step with a model's patches."""
    sampling = {name: changes.pop(name) for name in ("sampler", "latent") if name in changes}
    call = guided(model=model, **changes)
    state = start(model, **sampling, **{name: call[name] for name in PAIR}, cfg=call["cfg"])
    x: Tensor = step(pool or AnalyticPool(), state, call)["state"]["walk"]["x"]
    return x


def passing(executor: Any, *arguments: Any, **named: Any) -> Any:
    return executor(*arguments, **named)


def wrapped(kind: str, wrapper: Any = passing) -> dict[str, Any]:
    return {"transformer_options": {"wrappers": {kind: {None: [wrapper]}}}}


IDENTITIES: dict[str, dict[str, Any]] = {
    "cfg": {
        "sampler_cfg_function": lambda args: (
            args["uncond"] + (args["cond"] - args["uncond"]) * args["cond_scale"]
        )
    },
    "old cfg": {"sampler_cfg_function": lambda cond, uncond, scale: uncond + (cond - uncond) * scale},
    "pre": {"sampler_pre_cfg_function": [lambda args: args["conds_out"]]},
    "post": {"sampler_post_cfg_function": [lambda args: args["denoised"]]},
    "model function": {
        "model_function_wrapper": lambda apply, args: apply(args["input"], args["timestep"], **args["c"])
    },
    "conds": {
        "sampler_calc_cond_batch_function": lambda args: args["model"].calc_cond_batch(
            args["conds"], args["input"], args["sigma"], args["model_options"]
        )
    },
    **{kind: wrapped(kind) for kind in ("predict_noise", "calc_cond_batch", "apply_model")},
    "nothing known": {"my_pack": 1},
}


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("cfg", [7.0, 1.0])
def test_identity_leaves_the_bits(patched: Patched, name: str, cfg: float) -> None:
    found, plain = after_step(patched(IDENTITIES[name]), cfg=cfg), after_step(MODEL, cfg=cfg)
    if name in ("cfg", "old cfg"):  # noise there and back rounds
        torch.testing.assert_close(found, plain)
    else:
        assert torch.equal(found, plain)


def test_cfg_function_sees_noise_and_estimates_and_takes_the_place_of_guidance(patched: Patched) -> None:
    seen: list[dict[str, Any]] = []

    def positive_only(args: dict[str, Any]) -> Tensor:
        seen.append(args)
        cond: Tensor = args["cond"]
        return cond

    model = patched({"sampler_cfg_function": positive_only})
    torch.testing.assert_close(after_step(model), after_step(MODEL, cfg=1.0))
    (args,) = seen
    assert torch.equal(args["cond"], args["input"] - args["cond_denoised"])
    assert torch.equal(args["uncond"], args["input"] - args["uncond_denoised"])
    assert args["sigma"].shape == (2,)
    assert torch.equal(args["sigma"], args["timestep"])
    assert args["cond_scale"] == 7.0
    assert args["input_cond"][0]["cross_attn"].mean() == 1.0
    assert args["input_uncond"][0]["cross_attn"].mean() == 0.5
    assert float(args["model"].model_sampling.sigma_max) > 14
    assert args["model"].latent_format.scale_factor == FACTS.scale_factor
    torch.testing.assert_close(args["model"].process_latent_in(BATCH), BATCH * FACTS.scale_factor)


def test_functions_after_guidance_are_called_in_order_each_with_the_last_one_s_result(
    patched: Patched,
) -> None:
    seen: list[Tensor] = []

    def add(args: dict[str, Any]) -> Tensor:
        seen.append(args["denoised"])
        denoised: Tensor = args["denoised"]
        return denoised + 1

    after_step(patched({"sampler_post_cfg_function": [add, add]}))
    assert torch.equal(seen[1], seen[0] + 1)


def test_functions_before_guidance_change_what_is_guided(patched: Patched) -> None:
    def swap(args: dict[str, Any]) -> list[Tensor]:
        assert [len(side) for side in args["conds"]] == [1, 1]
        return args["conds_out"][::-1]  # type: ignore[no-any-return]

    swapped = after_step(patched({"sampler_pre_cfg_function": [swap]}))
    other = after_step(MODEL, positive=conditioning(0.5), negative=conditioning(1.0))
    torch.testing.assert_close(swapped, other)


def test_negative_is_evaluated_at_scale_one_where_patches_want_it_and_is_zeros_else(patched: Patched) -> None:
    sums: list[float] = []

    def note(args: dict[str, Any]) -> Tensor:
        sums.append(float(args["uncond_denoised"].abs().sum()))
        denoised: Tensor = args["denoised"]
        return denoised

    for disabled in (False, True):
        pool = AnalyticPool()
        options = {"sampler_post_cfg_function": [note], "disable_cfg1_optimization": disabled}
        after_step(patched(options), pool, cfg=1.0)
        assert pool.model.calls[0][0].shape[0] == (4 if disabled else 2)
    assert sums[0] == 0.0
    assert sums[1] > 0.0


def test_model_function_wrapper_gets_unscaled_input_levels_and_sides(patched: Patched) -> None:
    seen: list[dict[str, Any]] = []

    def wrapper(apply: Any, args: dict[str, Any]) -> Tensor:
        seen.append(args)
        output: Tensor = apply(args["input"], args["timestep"], **args["c"])
        return output

    model = patched({"model_function_wrapper": wrapper})
    after_step(model)
    (args,) = seen
    state = start(model)
    assert torch.equal(args["input"], torch.cat([state["walk"]["x"]] * 2))
    assert args["cond_or_uncond"] == [1, 0]
    assert args["timestep"].tolist() == [state["walk"]["sigmas"][0]] * 4
    assert args["c"]["c_crossattn"].shape == (4, 77, FACTS.context_width)
    options = args["c"]["transformer_options"]
    assert options["cond_or_uncond"] == [1, 0]
    assert options["sigmas"].tolist() == [state["walk"]["sigmas"][0]] * 2
    assert options["sample_sigmas"].tolist() == state["walk"]["sigmas"]
    assert len(options["uuids"]) == 2


def test_the_network_gets_the_transformer_options_anew_at_each_call(patched: Patched) -> None:
    pool, inner = AnalyticPool(), {"patches": {"middle_patch": [abs]}, "my_pack": {"a": 1}}
    model = patched({"transformer_options": inner})
    after_step(model, pool)
    after_step(model, pool)
    first, second = pool.model.options
    assert first is not None
    assert second is not None
    assert first["patches"] == inner["patches"]
    first["patches"]["middle_patch"].append(abs)
    assert (inner["patches"], second["patches"]) == ({"middle_patch": [abs]}, {"middle_patch": [abs]})


def test_patches_can_evaluate_other_conditionings_inside(patched: Patched) -> None:
    pool = AnalyticPool()

    def away_from_zero(args: dict[str, Any]) -> Tensor:
        conds = [{**each, "cross_attn": each["cross_attn"] * 0} for each in args["cond"]]
        (empty,) = args["model"].calc_cond_batch([conds], args["input"], args["sigma"], args["model_options"])
        return 2 * args["denoised"] - empty  # type: ignore[no-any-return]

    after_step(patched({"sampler_post_cfg_function": [away_from_zero]}), pool)
    assert [call[2].mean().item() for call in pool.model.calls] == [0.75, 0.0]
    assert pool.model.calls[1][0].shape[0] == 2


def test_other_evaluations_get_their_part_of_what_a_control_net_adds(patched: Patched) -> None:
    sums: list[Tensor] = []

    def again(args: dict[str, Any]) -> Tensor:
        (alone,) = args["model"].calc_cond_batch(
            [args["cond"]], args["input"], args["sigma"], args["model_options"]
        )
        sums.append((alone - args["cond_denoised"]).abs().max())
        denoised: Tensor = args["denoised"]
        return denoised

    only = application()
    model = patched({"sampler_post_cfg_function": [again]})
    both = {name: conditioning(value, control=[only]) for name, value in zip(PAIR, (1.0, 0.5), strict=True)}
    pool, call = AnalyticPool(), guided(model=model, applications=[only], **both)
    state = start(model, applications=[only], **both)
    residuals = control(pool, state, call, 0)
    step(pool, state, call, residuals=[residuals], single_evaluation=True)
    torch.testing.assert_close(sums[0], torch.tensor(0.0), atol=1e-5, rtol=0)


def test_memory_is_part_of_the_state_and_a_retry_sees_the_same(patched: Patched) -> None:
    def count(args: dict[str, Any]) -> Tensor:
        kept = args["model_options"]["walk_memory"].setdefault("counting", {"calls": 0})
        kept["calls"] += 1
        denoised: Tensor = args["denoised"]
        return denoised + kept["calls"]

    model = patched({"sampler_post_cfg_function": [count]})
    pool, call = AnalyticPool(), guided(model=model)
    first = step(pool, start(model), call)["state"]
    once, again = (step(pool, first, call)["state"] for _ in range(2))
    assert first["memory"] == {"counting": {"calls": 1}}
    assert once["memory"] == again["memory"] == {"counting": {"calls": 2}}
    assert torch.equal(once["walk"]["x"], again["walk"]["x"])


def test_samplers_that_use_the_unguided_estimate_see_the_changed_one(patched: Patched) -> None:
    def silence(args: dict[str, Any]) -> list[Tensor]:
        return [args["conds_out"][0], args["conds_out"][1] * 0]

    model = patched({"sampler_pre_cfg_function": [silence]})
    changed = after_step(model, sampler="euler_cfg_pp", cfg=1.0)
    assert not torch.equal(changed, after_step(MODEL, sampler="euler_cfg_pp", cfg=1.0))


def test_mask_function_says_what_is_kept(patched: Patched) -> None:
    def everything(sigma: Tensor, mask: Tensor, extra_options: dict[str, Any]) -> Tensor:
        assert sigma.shape == (2,)
        assert extra_options["sigmas"][0] == sigma[0]
        assert extra_options["model"].inner_model.model_sampling.timestep(sigma).tolist() == [999, 999]
        return torch.ones_like(mask)

    masked = {"latent": {"samples": BATCH, "noise_mask": torch.zeros(1, 8, 8)}}
    free = after_step(patched({"denoise_mask_function": everything}), **masked)
    assert torch.equal(free, after_step(MODEL))
    assert not torch.equal(after_step(MODEL, **masked), free)


def test_a_model_sampling_of_a_pack_is_the_noise_process(patched: Patched) -> None:
    class Shorter:
        sigma_min, sigma_max = torch.tensor(0.1), torch.tensor(2.0)
        sigmas = torch.linspace(0.1, 2.0, 1000)

        def timestep(self, sigma: Tensor) -> Tensor:
            return sigma * 100

        def sigma(self, timestep: Tensor) -> Tensor:
            return timestep / 100

        def percent_to_sigma(self, percent: float) -> float:
            return 2.0 * (1 - percent)

        def calculate_input(self, sigma: Tensor, noise: Tensor) -> Tensor:
            return noise

        def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
            return model_output

        def noise_scaling(
            self, sigma: Tensor, noise: Tensor, latent_image: Tensor, max_denoise: bool = False
        ) -> Any:
            return latent_image

    pool, model = AnalyticPool(), patched({}, {"model_sampling": Shorter()})
    state = start(model)
    assert (state["walk"]["sigmas"][0], state["walk"]["sigmas"][-1]) == (2.0, 0.0)
    torch.testing.assert_close(state["walk"]["x"], BATCH * FACTS.scale_factor)
    step(pool, state, guided(model=model))
    assert pool.model.calls[0][1].tolist() == [200.0] * 4


def test_wrappers_see_what_they_wrap(patched: Patched) -> None:
    seen: dict[str, tuple[Any, ...]] = {}

    def note(kind: str) -> Any:
        def wrapper(executor: Any, *arguments: Any, **named: Any) -> Any:
            seen[kind] = arguments
            return executor(*arguments, **named)

        return wrapper

    kinds = ("predict_noise", "calc_cond_batch", "apply_model")
    after_step(patched({"wrappers": {kind: {"key": [note(kind)]} for kind in kinds}}))
    assert [len(seen[kind]) for kind in kinds] == [4, 5, 6]
    x, timestep, options, _ = seen["predict_noise"]
    assert (x.shape[0], timestep.shape) == (2, (2,))
    assert seen["calc_cond_batch"][4] is options
    assert seen["apply_model"][0].shape[0] == 4


@pytest.mark.parametrize("kind", ["outer_sample", "sampler_sample"])
def test_wrappers_of_a_whole_sampling_call_are_refused_by_name(patched: Patched, kind: str) -> None:
    with pytest.raises(PromptError, match=f"wraps '{kind}' of a model"):
        after_step(patched(wrapped(kind)))


def test_objects_that_are_not_used_here_are_refused_by_name(patched: Patched) -> None:
    with pytest.raises(PromptError, match=r"replaces diffusion_model\.out of a model"):
        after_step(patched({}, {"diffusion_model.out": None}))


def test_unknown_patches_are_refused_by_name() -> None:
    with pytest.raises(PromptError, match="no model patch 'sparkle'"):
        after_step(ModelRef(MODEL.file, patches=(Patch("sparkle"),)))


def test_what_a_function_raises_names_it(patched: Patched) -> None:
    def broken(args: dict[str, Any]) -> Tensor:
        return args["nothing"]  # type: ignore[no-any-return]

    with pytest.raises(WorkerError, match=r"sampler_post_cfg_function .*broken: 'nothing'"):
        after_step(patched({"sampler_post_cfg_function": [broken]}))


def test_a_pack_s_functions_come_after_built_in_ones(patched: Patched) -> None:
    seen: list[Tensor] = []

    def note(args: dict[str, Any]) -> Tensor:
        seen.append(args["denoised"])
        denoised: Tensor = args["denoised"]
        return denoised

    after_step(patched({"sampler_post_cfg_function": [note]}))
    scaled = Patch("epsilon_scaling", (("scaling_factor", 0.5),))
    after_step(patched({"sampler_post_cfg_function": [note]}, before=(scaled,)))
    assert not torch.equal(seen[0], seen[1])


def test_what_a_view_of_a_model_does_not_have_is_named(patched: Patched) -> None:
    def look(args: dict[str, Any]) -> Any:
        return args["model"].diffusion_model

    with pytest.raises(WorkerError, match="'diffusion_model' of a model cannot be had where patches run"):
        after_step(patched({"sampler_post_cfg_function": [look]}))
