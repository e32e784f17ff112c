"""Load pickled patches: once per file, with the modules of packs at hand, errors that name the cause."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from comfyserverless.core.errors import PromptError, WorkerError
from comfyserverless.core.values import PYTHON_PATCH, ModelRef, Patch
from comfyserverless.functions.patching.pickled import PACK_MODULES, PickledPatches
from tests.support.analytic_models import MODEL, AnalyticPool
from tests.support.pack_modules import pack_modules
from tests.unit.functions.patching.test_evaluation import after_step


@pytest.fixture(autouse=True)
def apart(tmp_path: Path) -> Iterator[None]:
    """Have the modules of packs only where these tests put them, and only as long."""
    with pack_modules(tmp_path / "packs"):
        sys.path.remove(str(PACK_MODULES))
        before = list(sys.path)
        yield
        sys.path[:] = [str(PACK_MODULES), *before]


def written(path: Path, value: Any) -> str:
    path.write_bytes(cloudpickle.dumps(value))
    return str(path)


def test_a_pickled_function_acts_on_a_step(tmp_path: Path) -> None:
    strength = 2.0
    options = {"sampler_post_cfg_function": [lambda args: args["denoised"] * strength]}
    path = written(tmp_path / "digest", {"model_options": options, "object_patches": {}})
    found = after_step(ModelRef(MODEL.file, patches=(Patch(PYTHON_PATCH, (("path", path),)),)))
    assert not torch.allclose(found, after_step(MODEL))


def test_a_pickled_function_finds_the_modules_of_packs_and_evaluates_inside(tmp_path: Path) -> None:
    def away_from_empty(args: dict[str, Any]) -> torch.Tensor:
        import comfy.samplers

        empty = [{**each, "cross_attn": each["cross_attn"] * 0} for each in args["cond"]]
        model, x, sigma = args["model"], args["input"], args["sigma"]
        (estimate,) = comfy.samplers.calc_cond_batch(model, [empty], x, sigma, args["model_options"])
        guided = comfy.samplers.sampling_function(model, x, sigma, args["uncond"], args["cond"], 7.0)
        assert torch.equal(guided, args["denoised"])
        return args["denoised"] + (args["cond_denoised"] - estimate)  # type: ignore[no-any-return]

    path = written(tmp_path / "digest", {"model_options": {"sampler_post_cfg_function": [away_from_empty]}})
    pool = AnalyticPool()
    after_step(ModelRef(MODEL.file, patches=(Patch(PYTHON_PATCH, (("path", path),)),)), pool)
    assert [round(call[2].mean().item(), 3) for call in pool.model.calls] == [0.75, 0.0, 0.75]


def test_a_file_is_loaded_once_and_the_oldest_is_forgotten(tmp_path: Path) -> None:
    patches = PickledPatches(kept=2)
    paths = [written(tmp_path / str(number), {"number": number}) for number in range(3)]
    first = patches.load(paths[0])
    patches.load(paths[1])
    assert patches.load(paths[0]) is first
    patches.load(paths[2])
    assert patches.load(paths[0]) is first
    assert len(patches._loaded) == 2


def test_modules_of_packs_can_be_found_behind_all_others(tmp_path: Path) -> None:
    PickledPatches().load(written(tmp_path / "digest", {}))
    assert sys.path.index(str(PACK_MODULES)) > 0
    assert PACK_MODULES.parts[-2:] == ("host", "modules")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="digest, is gone: queue the prompt again"):
        PickledPatches().load(str(tmp_path / "digest"))


class Unloadable:
    """Something whose class is unknown where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("a_module_of_a_pack",)


def test_what_cannot_be_loaded_names_the_missing_module(tmp_path: Path) -> None:
    path = written(tmp_path / "digest", {"model_options": {"a": Unloadable()}})
    with pytest.raises(WorkerError, match="No module named 'a_module_of_a_pack'") as raised:
        PickledPatches().load(path)
    assert raised.value.exception_type == "ModuleNotFoundError"


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="holds a list"):
        PickledPatches().load(written(tmp_path / "digest", []))
