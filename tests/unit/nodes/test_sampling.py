"""The DAG that a sampler node becomes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyserverless.core.errors import InvariantError, PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import Output
from comfyserverless.graph.lowering import StepProgress
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import MODEL, output
from tests.unit.nodes.test_conditioning import cond
from tests.unit.nodes.test_controlnet import CANNY, DEPTH, HINT, application

SAMPLES = Output(InvocationId("empty"), "samples")


def evaluation(
    step: int, *controls: int, last: bool = True, branches: list[list[int]] | None = None
) -> dict[str, Any]:
    return {"step": step, "last_of_step": last, "controls": list(controls), "branches": branches}


def context(steps: int, *evaluations: dict[str, Any], **more: Any) -> FakeContext:
    listed = list(evaluations) or [evaluation(step) for step in range(steps)]
    return FakeContext(results={"sample.begin": {"plan": plan(steps, *listed)}}, **more)


def plan(steps: int, *evaluations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "steps": steps,
        "maximum": steps,
        "is_dynamic": False,
        "shape": [1, 4, 8, 8],
        "evaluations": list(evaluations),
        **more,
    }


SHOWN = {"size_px": 512, "decoders": None}


class DynamicContext(FakeContext):
    """Answer each denoise.step with the next of the evaluations that follow."""

    def __init__(self, maximum: int, *evaluations: dict[str, Any]) -> None:
        begun = {"plan": plan(0, *evaluations[:1], maximum=maximum, is_dynamic=True)}
        super().__init__(results={"sample.begin": begun}, preview=SHOWN)
        self.following = iter([*evaluations[1:], None])

    async def result(self, output: Output) -> Any:
        if output.port != "upcoming":
            return await super().result(output)
        assert output.invocation == self.calls[-1].id, "only the newest step is awaited"
        return next(self.following)


async def sample(ctx: FakeContext, **more: Any) -> Any:
    inputs = {
        "model": MODEL,
        "seed": 7,
        "steps": 3,
        "cfg": 6.5,
        "sampler_name": "heun",
        "scheduler": "karras",
        "positive": cond("p"),
        "negative": cond("n"),
        "latent_image": {"samples": SAMPLES},
        "denoise": 0.8,
    }
    return await output("KSampler", ctx, **{**inputs, **more})


async def test_sampler_without_controls_is_one_invocation_per_step() -> None:
    ctx = context(3, preview=SHOWN)
    value = await sample(ctx)
    begin, *steps, end = ctx.calls
    assert ctx.functions() == ["sample.begin", "denoise.step", "denoise.step", "denoise.step", "sample.end"]
    assert begin.inputs == {
        "model": MODEL,
        "latent": {"samples": SAMPLES},
        "positive": cond("p"),
        "negative": cond("n"),
        "applications": [],
        "seed": 7,
        "steps": 3,
        "cfg": 6.5,
        "guide": None,
        "options": {},
        "sigmas": None,
        "keeps_estimate": False,
        "sampler": "heun",
        "scheduler": "karras",
        "denoise": 0.8,
        "start_step": None,
        "last_step": None,
        "force_full_denoise": False,
        "add_noise": True,
    }
    before = begin.id
    for index, step in enumerate(steps):
        assert step.inputs == {
            "model": MODEL,
            "state": Output(before, "state"),
            "positive": cond("p"),
            "negative": cond("n"),
            "cfg": 6.5,
            "guide": None,
            "applications": [],
            "residuals": [],
            "uncond": None,
            "single_evaluation": False,
            "preview": SHOWN,
        }
        assert step.progress == StepProgress(index + 1, 3)
        before = step.id
    assert end.inputs == {"model": MODEL, "state": Output(before, "state")}
    assert end.progress is begin.progress is None
    assert value == {"samples": Output(end.id, "samples")}


async def test_only_the_plan_is_awaited_so_all_steps_are_emitted_at_once() -> None:
    ctx = context(3)
    await sample(ctx)
    assert ctx.awaited == [Output(ctx.calls[0].id, "plan")]


async def test_heun_with_a_control_net_is_one_control_and_one_step_per_model_call() -> None:
    controlled = cond("p", control=[application()]), cond("n", control=[application()])
    evaluations = [
        evaluation(0, 0, last=False),
        evaluation(0, 0),
        evaluation(1, 0, last=False),
        evaluation(1, 0),
        evaluation(2, 0),
    ]
    ctx = context(3, *evaluations, preview=SHOWN)
    await sample(ctx, positive=controlled[0], negative=controlled[1])
    assert ctx.functions() == ["sample.begin", *["controlnet.run", "denoise.step"] * 5, "sample.end"]
    assert ctx.calls[0].inputs["applications"] == [application()]
    state = Output(ctx.calls[0].id, "state")
    for control, step in zip(ctx.calls[1:-1:2], ctx.calls[2:-1:2], strict=True):
        assert control.inputs == {
            "model": MODEL,
            "control_net": CANNY,
            "state": state,
            "positive": controlled[0],
            "negative": controlled[1],
            "cfg": 6.5,
            "guide": None,
            "applications": [application()],
            "application": 0,
            "branch": "both",
        }
        assert control.progress is None
        assert step.inputs["state"] == state
        assert step.inputs["residuals"] == [Output(control.id, "residuals")]
        assert step.inputs["single_evaluation"] is True
        state = Output(step.id, "state")
    steps = ctx.calls[2:-1:2]
    assert [step.progress for step in steps] == [
        None,
        StepProgress(1, 3),
        None,
        StepProgress(2, 3),
        StepProgress(3, 3),
    ]
    assert [step.inputs["preview"] for step in steps] == [
        None,
        SHOWN,
        None,
        SHOWN,
        SHOWN,
    ]
    assert ctx.calls[-1].inputs["state"] == state


async def test_inactive_control_nets_do_not_run_and_leave_a_gap() -> None:
    both = cond("p", control=[application(CANNY), application(DEPTH)])
    ctx = context(3, evaluation(0, 0), evaluation(1, 0, 1), evaluation(2))
    await sample(ctx, positive=both)
    runs = [call for call in ctx.calls if call.function == "controlnet.run"]
    assert [(run.inputs["application"], run.inputs["control_net"]) for run in runs] == [
        (0, CANNY),
        (0, CANNY),
        (1, DEPTH),
    ]
    steps = [call for call in ctx.calls if call.function == "denoise.step"]
    assert [step.inputs["residuals"] for step in steps] == [
        [Output(runs[0].id, "residuals"), None],
        [Output(runs[1].id, "residuals"), Output(runs[2].id, "residuals")],
        [None, None],
    ]


async def test_control_of_the_old_node_reaches_the_negative() -> None:
    positive = cond("p", control=[application()], control_apply_to_uncond=True)
    ctx = context(1, evaluation(0, 0))
    await sample(ctx, positive=positive)
    assert all(
        call.inputs["negative"] == cond("n", control=[application()])
        for call in ctx.calls
        if "negative" in call.inputs
    )
    assert HINT in [entry["hint"] for entry in ctx.calls[0].inputs["applications"]]


async def test_plan_that_names_a_control_that_is_not_there_is_a_broken_law() -> None:
    with pytest.raises(InvariantError, match="controls"):
        await sample(context(1, evaluation(0, 1)), positive=cond("p", control=[application()]))


async def test_walk_without_steps_is_begin_and_end_only() -> None:
    ctx = context(0)
    await sample(ctx)
    assert ctx.functions() == ["sample.begin", "sample.end"]
    assert ctx.calls[1].inputs["state"] == Output(ctx.calls[0].id, "state")


async def test_other_keys_of_the_latent_are_kept_and_only_known_ones_sampled() -> None:
    latent = {
        "samples": tensor("l", 1, 4, 8, 8),
        "batch_index": [3],
        "noise_mask": tensor("m", 1, 8, 8),
        "x": 1,
    }
    before = dict(latent)
    ctx = context(1)
    value = await sample(ctx, latent_image=latent)
    assert set(ctx.calls[0].inputs["latent"]) == {"samples", "batch_index", "noise_mask"}
    assert value == {**before, "samples": Output(ctx.calls[-1].id, "samples")}
    assert latent == before


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model", "MODEL"),
        ("positive", "CONDITIONING"),
        ("negative", "CONDITIONING"),
        ("latent_image", "LATENT"),
    ],
)
async def test_literal_on_a_socket_fails_before_anything_is_emitted(name: str, kind: str) -> None:
    ctx = context(1)
    with pytest.raises(PromptError, match=f"'{name}' takes a {kind}, but got str"):
        await sample(ctx, **{name: "hello"})
    assert ctx.calls == []


@pytest.mark.parametrize(("leftover", "is_full"), [("enable", False), ("disable", True)])
@pytest.mark.parametrize(("noise", "adds"), [("enable", True), ("disable", False)])
async def test_advanced_sampler_maps_its_switches(leftover: str, is_full: bool, noise: str, adds: bool) -> None:
    ctx = context(2)
    await output(
        "KSamplerAdvanced",
        ctx,
        model=MODEL,
        add_noise=noise,
        noise_seed=9,
        steps=20,
        cfg=8.0,
        sampler_name="euler",
        scheduler="normal",
        positive=cond("p"),
        negative=cond("n"),
        latent_image={"samples": SAMPLES},
        start_at_step=4,
        end_at_step=10000,
        return_with_leftover_noise=leftover,
    )
    begin = ctx.calls[0].inputs
    assert (begin["add_noise"], begin["force_full_denoise"]) == (adds, is_full)
    assert (begin["seed"], begin["start_step"], begin["last_step"], begin["denoise"]) == (9, 4, 10000, 1.0)


@pytest.mark.parametrize("applications", [[], [application()]])
async def test_many_steps_let_other_work_in(applications: list[dict[str, Any]]) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    await sample(context(640), positive=cond("p", control=applications) if applications else cond("p"))
    other.cancel()
    assert turns >= 10


async def test_dynamic_sampler_emits_one_step_after_the_other_until_nothing_is_upcoming() -> None:
    ctx = DynamicContext(2, *(evaluation(step, last=False) for step in range(3)))
    value = await sample(ctx)
    begin, *steps, end = ctx.calls
    assert ctx.functions() == ["sample.begin", *["denoise.step"] * 3, "sample.end"]
    assert [step.inputs["state"] for step in (*steps, end)] == [
        Output(call.id, "state") for call in (begin, *steps)
    ]
    assert all(step.inputs["single_evaluation"] is False for step in steps)
    assert [step.progress for step in steps] == [StepProgress(1, 2), StepProgress(2, 2), StepProgress(2, 2)]
    assert value == {"samples": Output(end.id, "samples")}


async def test_dynamic_sampler_holds_the_newest_step_only() -> None:
    ctx = DynamicContext(2, evaluation(0), evaluation(1))
    await sample(ctx, sampler_name="dpm_adaptive")
    assert ctx.kept == [call.id for call in ctx.calls if call.function == "denoise.step"]


async def test_dynamic_sampler_runs_the_control_nets_of_each_evaluation() -> None:
    ctx = DynamicContext(5, evaluation(0, 0, last=False), evaluation(0), evaluation(1, last=False))
    await sample(ctx, positive=cond("p", control=[application()]))
    steps = [call for call in ctx.calls if call.function == "denoise.step"]
    assert [call.function for call in ctx.calls].count("controlnet.run") == 1
    assert [step.inputs["residuals"] for step in steps] == [
        [Output(ctx.calls[1].id, "residuals")],
        [None],
        [None],
    ]
    assert [step.progress for step in steps] == [None, StepProgress(1, 5), None]


async def test_dynamic_walk_with_nothing_to_do_is_begin_and_end_only() -> None:
    ctx = DynamicContext(1)
    await sample(ctx)
    assert ctx.functions() == ["sample.begin", "sample.end"]


async def test_progress_counts_to_the_maximum_of_the_plan() -> None:
    ctx = FakeContext(results={"sample.begin": {"plan": plan(2, evaluation(0), evaluation(1), maximum=5)}})
    await sample(ctx)
    assert [call.progress for call in ctx.calls[1:-1]] == [StepProgress(1, 5), StepProgress(2, 5)]


async def test_split_guidance_is_two_calls_an_evaluation_that_need_the_same_state_only() -> None:
    evaluations = [evaluation(0, last=False, branches=[[], []]), evaluation(0, branches=[[], []])]
    ctx = context(1, *evaluations, split_guidance="on")
    await sample(ctx)
    begin, *steps, end = ctx.calls
    assert ctx.functions() == ["sample.begin", *["denoise.negative", "denoise.step"] * 2, "sample.end"]
    state = Output(begin.id, "state")
    for negative, step in zip(steps[::2], steps[1::2], strict=True):
        assert negative.inputs["state"] == step.inputs["state"] == state
        assert step.inputs["uncond"] == Output(negative.id, "uncond")
        assert step.inputs["single_evaluation"] is True
        assert negative.progress is None
        state = Output(step.id, "state")
    assert [step.progress for step in steps[1::2]] == [None, StepProgress(1, 1)]
    assert end.inputs["state"] == state


async def test_control_nets_of_split_guidance_run_for_each_branch_that_they_act_in() -> None:
    both, positive = application(CANNY), application(DEPTH)
    ctx = context(1, evaluation(0, 0, 1, branches=[[0, 1], [0]]), split_guidance="on")
    await sample(ctx, positive=cond("p", control=[both, positive]), negative=cond("n", control=[both]))
    runs = [call for call in ctx.calls if call.function == "controlnet.run"]
    assert [(run.inputs["application"], run.inputs["branch"]) for run in runs] == [
        (0, "negative"),
        (0, "positive"),
        (1, "positive"),
    ]
    of = [Output(run.id, "residuals") for run in runs]
    negative, step = ctx.calls[2], ctx.calls[-2]
    assert (negative.function, negative.inputs["residuals"]) == ("denoise.negative", [of[0], None])
    assert step.inputs["residuals"] == [of[1], of[2]]


async def test_split_guidance_leaves_evaluations_of_one_branch_whole() -> None:
    ctx = context(2, evaluation(0, branches=[[], []]), evaluation(1), split_guidance="on")
    await sample(ctx)
    assert ctx.functions() == ["sample.begin", "denoise.negative", *["denoise.step"] * 2, "sample.end"]
    assert ctx.calls[-2].inputs["uncond"] is None


async def test_split_guidance_without_a_negative_is_one_invocation_per_step() -> None:
    ctx = context(2, evaluation(0, last=False), evaluation(0), evaluation(1), split_guidance="on")
    await sample(ctx)
    assert ctx.functions() == ["sample.begin", *["denoise.step"] * 2, "sample.end"]


async def test_dynamic_sampler_with_split_guidance_runs_the_negative_of_each_evaluation() -> None:
    evaluations = [evaluation(0, last=False, branches=[[], []]), evaluation(0, branches=[[], []])]
    ctx = DynamicContext(2, *evaluations)
    ctx.split_guidance = "on"
    await sample(ctx, sampler_name="dpm_adaptive")
    assert ctx.functions() == ["sample.begin", *["denoise.negative", "denoise.step"] * 2, "sample.end"]
    assert ctx.kept == [call.id for call in ctx.calls if call.function == "denoise.step"]


def weighing(batched_s: float, branch_s: float, *evaluations: dict[str, Any]) -> FakeContext:
    begun = {"plan": plan(1, *evaluations)}
    measured = {"batched_s": batched_s, "branch_s": branch_s}
    return FakeContext(results={"sample.begin": begun, "denoise.weigh": measured}, split_guidance="auto")


@pytest.mark.parametrize(("branch_s", "is_split"), [(0.52, True), (0.53, False)])
async def test_auto_splits_where_both_branches_apart_take_hardly_longer(
    branch_s: float, is_split: bool
) -> None:
    ctx = weighing(1.0, branch_s, evaluation(0, branches=[[], []]))
    await sample(ctx)
    assert ctx.functions()[1] == "denoise.weigh"
    assert ("denoise.negative" in ctx.functions()) is is_split
    assert list(ctx.choices.values()) == [is_split]


async def test_auto_measures_a_model_and_size_once() -> None:
    ctx = weighing(1.0, 0.9, evaluation(0, branches=[[], []]))
    await sample(ctx)
    (key,) = ctx.choices
    again = weighing(1.0, 0.9, evaluation(0, branches=[[], []]))
    again.choices = {key: True}
    await sample(again)
    assert again.functions() == ["sample.begin", "denoise.negative", "denoise.step", "sample.end"]
    assert MODEL.file.path in key
    assert "[1, 4, 8, 8]" in key


async def test_auto_does_what_another_prompt_chose_meanwhile() -> None:
    class Late(FakeContext):
        def choice(self, key: str) -> bool | None:
            return None

        def choose(self, key: str, choice: bool) -> bool:
            return not choice

    results = weighing(1.0, 0.9, evaluation(0, branches=[[], []])).results
    ctx = Late(results=results, split_guidance="auto")
    await sample(ctx)
    assert "denoise.negative" in ctx.functions()


async def test_auto_measures_nothing_where_one_branch_takes_part() -> None:
    ctx = weighing(1.0, 0.5, evaluation(0))
    await sample(ctx)
    assert ctx.functions() == ["sample.begin", "denoise.step", "sample.end"]
    assert ctx.choices == {}
