"""What people are told of the layers in memory."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.values import FileRef, LoraRef
from comfyserverless.models.lora.patched import patch_model
from comfyserverless.models.resident import picture
from comfyserverless.models.resident.picture import draw_weights, runs_of, variant_of
from comfyserverless.models.resident.transfer import Transfer
from tests.unit.models.resident.stacks import LAYER_BYTES, Stack, run

X = torch.ones(2, 16)


def test_a_model_is_shown_with_its_file_and_which_layers_are_there(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=2.5)
    stack.write("a", 0)
    run(stack.runner("a"), X)
    drawn = draw_weights(stack.keeper)
    (model,) = drawn.models
    assert (model.name, model.kind, model.variant, model.layers) == ("a", "stack", "", 4)
    assert (model.total_bytes, model.resident_bytes) == (4 * LAYER_BYTES, 2 * LAYER_BYTES)
    assert sum(end - first for first, end in model.resident) == 2
    assert drawn.device.used_bytes == 2 * LAYER_BYTES
    assert drawn.device.budget_bytes == int(2.5 * LAYER_BYTES)
    assert not model.is_in_use


def test_layers_are_counted_by_where_they_came_from(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4, transfer=Transfer(torch.device("cpu"), host_bytes=100 * LAYER_BYTES))
    stack.write("a", 0)
    stack.write("b", 1)
    a, b = stack.runner("a"), stack.runner("b")
    run(a, X)
    run(a, X)
    drawn = draw_weights(stack.keeper)
    assert (drawn.counters.resident_layers, drawn.counters.disk_layers) == (4, 4)
    assert (drawn.host.models, drawn.counters.evicted_layers) == (1, 0)
    run(b, X)
    run(a, X)
    drawn = draw_weights(stack.keeper)
    counters = drawn.counters
    assert (counters.disk_layers, counters.host_layers, counters.evicted_layers) == (8, 4, 8)
    assert counters.disk_bytes == 2 * counters.host_bytes >= 8 * LAYER_BYTES
    assert (drawn.host.models, drawn.host.used_bytes) == (2, counters.disk_bytes)
    stack.keeper.free_all()
    assert draw_weights(stack.keeper).counters.evicted_layers == 8  # asked for, not for want of room
    assert draw_weights(stack.keeper).models == ()


def test_the_latest_used_models_come_first_and_the_list_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "MOST_MODELS", 2)
    stack = Stack(tmp_path, room=12)
    runners = {}
    for seed, name in enumerate("abc"):
        stack.write(name, seed)
        runners[name] = stack.runner(name)
    for name in "abca":
        run(runners[name], X)
    drawn = draw_weights(stack.keeper)
    assert [model.name for model in drawn.models] == ["a", "c"]
    assert drawn.more_models == 1


def test_private_layers_are_shown_with_their_loras_and_what_they_lack(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=8)
    stack.write("a", 0)
    runner = stack.runner("a")
    private = patch_model(runner.base, {"2.bias": ()}, stack.residence.device, "style x 0.5")
    with stack.keeper.running((runner.base, private)) as going:
        for step in range(4):
            stack.keeper.enter(going, step)
        in_use = draw_weights(stack.keeper)
    shown = {model.variant: model for model in in_use.models}
    assert shown["style x 0.5"].empty == ((0, 2), (3, 4))
    assert shown["style x 0.5"].resident == ((2, 3),)
    assert (shown["style x 0.5"].name, shown["style x 0.5"].kind) == ("a", "stack")
    assert shown[""].is_in_use
    assert in_use.counters.made_layers == 1


def test_a_picture_can_be_drawn_while_layers_come_and_go(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=5)
    for seed, name in enumerate("abc"):
        stack.write(name, seed)
    runners = [stack.runner(name) for name in "abc"]
    done = threading.Event()

    def work() -> None:
        for _ in range(10):
            for runner in runners:
                run(runner, X)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(1e-3):  # the other thread gets its turns on one core, too
        drawn = draw_weights(stack.keeper)
        assert all(model.resident_bytes <= model.total_bytes for model in drawn.models)
    thread.join()


def test_names_of_files_can_be_sent_whatever_they_are(tmp_path: Path) -> None:
    loras = [LoraRef(FileRef(f"/m/{name}"), 0.5) for name in ("x" * 300, "bad\udcff.st", "c", "d", "e")]
    named = variant_of(loras)
    assert named.endswith("bad?.st x 0.5, c x 0.5, d x 0.5, 1 more")
    assert len(named) < 200
    named.encode()


@given(st.sets(st.integers(0, 40)))
def test_runs_say_the_same_as_the_numbers(layers: set[int]) -> None:
    runs = runs_of(sorted(layers))
    assert [layer for first, end in runs for layer in range(first, end)] == sorted(layers)
    assert all(one[1] < two[0] for one, two in pairwise(runs))
