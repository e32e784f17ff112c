"""The pool of a worker, with files that need no model library."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import ClipRef, FileRef, ModelRef
from comfyserverless.models.pool import ModelPool
from tests.support.make_tiny_models import Spec, build
from tests.unit.models.files import mini_clip, mini_unet, write_file


def test_facts_come_from_the_header_alone(tmp_path: Path) -> None:
    tensors = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    pool = ModelPool()
    ref = ModelRef(write_file(tmp_path / "m.safetensors", tensors))
    assert pool.facts(ref).family == "sd15"
    (tmp_path / "m.safetensors").unlink()
    assert pool.facts(ref).family == "sd15", "kept"
    assert pool.weights_bytes == 0


def test_equal_handles_share_their_weights(tmp_path: Path) -> None:
    file = write_file(tmp_path / "l.safetensors", mini_clip())
    pool = ModelPool()
    first, second = (pool.text(ClipRef((file,), last_layer=layer)) for layer in (None, -2))
    assert first.parts is second.parts
    assert pool.weights_bytes == sum(t.nbytes for t in first.parts[0].weights.values())


def test_a_replaced_file_loads_anew(tmp_path: Path) -> None:
    path, pool = tmp_path / "l.safetensors", ModelPool()
    tensors = mini_clip()
    before, _ = pool.text(ClipRef((write_file(path, tensors),))).encode("a cat")
    tensors["text_model.final_layer_norm.bias"] += 1
    write_file(path, tensors)
    os.utime(path, ns=(0, 0))  # a time of its own, however coarse the clock of the file system is
    replaced = FileRef(str(path), path.stat().st_size, path.stat().st_mtime_ns)
    after, _ = pool.text(ClipRef((replaced,))).encode("a cat")
    assert torch.allclose(after, before + 1, atol=1e-2)


def test_the_budget_drops_what_was_used_least_recently(tmp_path: Path) -> None:
    files = [write_file(tmp_path / f"{at}.safetensors", mini_clip()) for at in range(3)]
    one_bytes = sum(t.nbytes for t in mini_clip().values())
    pool = ModelPool(budget_bytes=2 * one_bytes)
    encoders = [pool.text(ClipRef((file,))) for file in files]
    assert pool.weights_bytes == 2 * one_bytes
    assert pool.text(ClipRef((files[2],))).parts is encoders[2].parts
    assert pool.text(ClipRef((files[0],))).parts is not encoders[0].parts


def test_unload_all_forgets_everything(tmp_path: Path) -> None:
    pool = ModelPool()
    pool.text(ClipRef((write_file(tmp_path / "l.safetensors", mini_clip()),)))
    pool.unload_all()
    assert pool.weights_bytes == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file, pool = FileRef(str(tmp_path / "gone.safetensors")), ModelPool()
    for load in (lambda: pool.facts(ModelRef(file)), lambda: pool.text(ClipRef((file,)))):
        with pytest.raises(ModelFileError, match=r"gone\.safetensors: cannot be read"):
            load()


def test_two_threads_load_a_file_once(tmp_path: Path) -> None:
    ref, pool = ClipRef((write_file(tmp_path / "l.safetensors", mini_clip()),)), ModelPool()
    with ThreadPoolExecutor(2) as executor:
        encoders = list(executor.map(lambda _: pool.text(ref), range(8)))
    assert all(encoder.parts is encoders[0].parts for encoder in encoders)
