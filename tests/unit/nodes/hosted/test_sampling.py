"""Lower what packs ask of models to calls of model functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, ModelRef, TensorRef
from comfyserverless.graph.lowering import Emitted
from comfyserverless.nodes.hosted.registry import HOSTED
from comfyserverless.nodes.registry import BUILTIN

MODEL = ModelRef(FileRef("/m"))


def tensor(name: str) -> TensorRef:
    """Return a tensor."""
    return TensorRef(TensorId(name), (1, 4, 8, 8), "float32", 1024, WorkerId("w"), 0)


def side(name: str, **options: Any) -> Any:
    """Return a conditioning."""
    return [[tensor(name), options]]


class Context:
    """Note what is emitted; a plan has one step."""

    preview, split_guidance = None, "off"

    def __init__(self) -> None:
        self.emitted: list[tuple[str, dict[str, Any]]] = []

    def emit(self, function: str, *, progress: Any = None, **inputs: Any) -> Emitted:
        self.emitted.append((function, inputs))
        return Emitted(InvocationId(f"i{len(self.emitted)}"))

    async def result(self, output: Any) -> Any:
        evaluation = {"step": 0, "last_of_step": True, "controls": [], "branches": None}
        return {"steps": 1, "maximum": 1, "is_dynamic": False, "shape": [1], "evaluations": [evaluation]}


def lower(name: str, **inputs: Any) -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """Lower a node; returns its result and what it emitted."""
    declaration, context = HOSTED.get(name), Context()
    assert declaration is not None
    result = asyncio.run(declaration.lower(context, inputs))  # type: ignore[arg-type]
    return result, context.emitted


def test_no_prompt_can_name_these_classes() -> None:
    assert not set(HOSTED.names()) & set(BUILTIN.names())


def test_walk_starts_from_the_noise_that_is_given() -> None:
    result, emitted = lower(
        "HostSample", model=MODEL, positive=side("p"), negative=side("n"), cfg=3.0, guide=None,
        noise=tensor("noise"), seed=4, sampler="euler", options={"eta": 0.5}, sigmas=tensor("s"),
        latent={"samples": tensor("l")},
    )  # fmt: skip
    assert [function for function, _ in emitted] == ["sample.begin", "denoise.step", "sample.end"]
    begin = emitted[0][1]
    assert begin["latent"] == {"samples": tensor("l"), "given_noise": tensor("noise")}
    assert (begin["sampler"], begin["options"], begin["seed"]) == ("euler", {"eta": 0.5}, 4)
    assert len(result.outputs) == 2


def test_evaluation_stands_at_a_level_of_the_walk() -> None:
    _, emitted = lower(
        "HostEvaluate", model=MODEL, x=tensor("x"), sigmas=[4.0, 1.0, 0.0], step=1, positive=side("p")
    )
    ((function, given),) = emitted
    assert function == "denoise.evaluate"
    assert given["state"] == {
        "sampler": "euler",
        "walk": {"x": tensor("x"), "sigmas": [4.0, 1.0, 0.0], "step": 1},
    }
    assert (given["cfg"], given["guided"], given["residuals"]) == (1.0, False, [])
    with pytest.raises(PromptError, match="step 3 is no level"):
        lower("HostEvaluate", model=MODEL, x=tensor("x"), sigmas=[4.0], step=3, positive=side("p"))


def test_controls_run_beside_an_evaluation() -> None:
    control = {"control_net": ControlNetRef(FileRef("/c")), "hint": tensor("h"), "strength": 1.0,
               "start_percent": 0.0, "end_percent": 1.0}  # fmt: skip
    sides = {"positive": side("p", control=[control]), "negative": side("n", control=[control])}
    _, emitted = lower(
        "HostEvaluate", model=MODEL, x=tensor("x"), sigmas=[4.0, 0.0], step=0, middle=side("m"), **sides,
        guided_by=6.5,
    )  # fmt: skip
    assert [function for function, _ in emitted] == ["controlnet.run", "denoise.evaluate"]
    given = emitted[1][1]
    assert len(given["residuals"]) == 1
    assert given["guide"]["middle"] == side("m")
    assert (given["cfg"], given["guided"]) == (6.5, True)


def test_tokens_are_checked_before_they_are_sent() -> None:
    clip = ClipRef((FileRef("/m"),))
    result, emitted = lower("HostEncodeTokens", clip=clip, tokens={"l": [[[5, 1.0], [tensor("v"), 1.2]]]})
    assert [function for function, _ in emitted] == ["text.encode_tokens"]
    assert len(result.outputs) == 2
    for wrong in ({"l": [[["a", 1.0]]]}, {"l": 3}, [], {"l": [[5]]}):
        with pytest.raises(PromptError, match="chunks of"):
            lower("HostEncodeTokens", clip=clip, tokens=wrong)
