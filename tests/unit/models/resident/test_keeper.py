"""Layers that come while a run computes, and go for others."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import CapacityError, ModelFileError
from comfyserverless.models.resident import layers
from comfyserverless.models.resident.transfer import Transfer
from comfyserverless.residency.policy import POLICIES, PolicyName
from tests.unit.models.resident.stacks import LAYER_BYTES, HeldTransfer, Stack, expect, present, run

X = torch.ones(2, 16)


@pytest.mark.parametrize("policy", POLICIES)
def test_files_in_turn_give_the_same_bits_within_the_budget(tmp_path: Path, policy: PolicyName) -> None:
    stack = Stack(tmp_path, room=6, policy=policy)
    wanted = {name: expect(stack.write(name, seed), X) for seed, name in enumerate(("a", "b", "c"))}
    runners = {name: stack.runner(name) for name in wanted}
    for name in "abcabcaabb":
        assert torch.equal(run(runners[name], X), wanted[name])
        assert stack.keeper.resident_bytes <= 6 * LAYER_BYTES


def test_a_model_that_is_resident_is_not_loaded_again(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    stack.write("a", 0)
    runner = stack.runner("a")
    for _ in range(6):
        run(runner, X)
    assert runner.base.loaded_bytes == 4 * LAYER_BYTES
    assert runner.base.profile.is_settled


def test_a_model_larger_than_memory_streams_and_keeps_its_front(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=2.5)
    wanted = expect(stack.write("a", 0), X)
    runner = stack.runner("a")
    for _ in range(3):
        assert torch.equal(run(runner, X), wanted)
        assert stack.keeper.resident_bytes <= 2 * LAYER_BYTES


def test_a_layer_larger_than_memory_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=0.5)
    stack.write("a", 0)
    runner = stack.runner("a")
    for _ in range(2):
        with pytest.raises(CapacityError, match="--device-memory"):
            run(runner, X)
    assert stack.keeper.resident_bytes == 0


def test_a_file_that_breaks_while_it_streams_fails_its_run_and_no_other(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=2.5)
    stack.write("a", 0)
    wanted = expect(stack.write("b", 1), X)
    broken, good = stack.runner("a"), stack.runner("b")
    run(broken, X)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ModelFileError, match="a: was replaced"):
        run(broken, X)
    assert torch.equal(run(good, X), wanted)


def test_two_threads_that_stream_through_one_layers_room_both_finish(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=1)
    # Another structure, so that the runs do not wait for the same module.
    other = Stack(tmp_path, room=1, layers=3)
    other.keeper, other.residence = stack.keeper, stack.residence
    wanted_a, wanted_b = expect(stack.write("a", 0), X), expect(other.write("b", 1), X)
    runners = (stack.runner("a"), wanted_a), (other.runner("b"), wanted_b)
    wrong: list[object] = []

    def work(at: int) -> None:
        runner, wanted = runners[at]
        for _ in range(20):
            try:
                if not torch.equal(run(runner, X), wanted):
                    wrong.append(at)
            except CapacityError as exc:
                wrong.append(exc)

    threads = [threading.Thread(target=work, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    assert stack.keeper.resident_bytes <= LAYER_BYTES


def test_a_claim_takes_layers_at_once_and_those_in_use_when_their_run_is_over(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    stack.write("a", 0)
    runner = stack.runner("a")
    run(runner, X)
    with runner.running():
        assert stack.keeper.claim(3 * LAYER_BYTES) == 3 * LAYER_BYTES, "all of it is in use"
    assert stack.keeper.resident_bytes == LAYER_BYTES
    assert present(stack, runner.base) == [0]


def test_what_is_freed_holds_no_memory(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    stack.write("a", 0)
    runner = stack.runner("a")
    run(runner, X)
    stack.keeper.shrink(runner.base, 1)
    sizes = [sum(p.numel() for p in layer.parameters.values()) for layer in runner.base.layers]
    assert sizes == [16 * 17, 0, 0, 0]
    assert [layer.block is None for layer in runner.base.layers] == [False, True, True, True]


def test_no_thread_outlives_the_runs_that_needed_it(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    stack.write("a", 0)
    run(stack.runner("a"), X)
    loader = [thread for thread in threading.enumerate() if thread.name == "weights"]
    for thread in loader:
        thread.join(60)
        assert not thread.is_alive()


def test_compute_starts_on_the_first_layer_while_the_last_one_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack(tmp_path, room=4)
    wanted = expect(stack.write("a", 0), X)
    runner = stack.runner("a")
    computed_first = threading.Event()
    load = layers.FileLayer.load

    def slow_last(self: layers.FileLayer, key: tuple[str, int], transfer: object) -> object:
        if key[1] == 3:
            assert computed_first.wait(60), "the first layer waits for the last"
        return load(self, key, transfer)  # type: ignore[arg-type]

    monkeypatch.setattr(layers.FileLayer, "load", slow_last)
    with torch.inference_mode(), runner.running() as module:
        hook = module[0].register_forward_hook(lambda *_: computed_first.set())
        assert torch.equal(module(X), wanted)
        hook.remove()


def test_waiting_for_loads_is_told_once(tmp_path: Path) -> None:
    held = HeldTransfer()
    stack = Stack(tmp_path, room=4, transfer=held)
    stack.write("a", 0)
    runner = stack.runner("a")

    def open_once_it_waits() -> None:
        while not any(each.waits_for == 0 for each in stack.keeper._runs):
            time.sleep(1e-3)
        time.sleep(5e-3)
        held.gate.set()

    opener = threading.Thread(target=open_once_it_waits)
    begin_s = time.perf_counter()
    opener.start()
    run(runner, X)
    opener.join()
    assert 5e-3 <= stack.keeper.take_waited_s() < time.perf_counter() - begin_s
    run(runner, X)
    assert stack.keeper.take_waited_s() == 0


def test_a_model_is_forgotten_only_when_nothing_of_it_is_there(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    wanted = expect(stack.write("a", 0), X)
    runner = stack.runner("a")
    run(runner, X)
    assert not stack.keeper.forget(runner.base)
    stack.keeper.free_all()
    assert stack.keeper.forget(runner.base)
    assert torch.equal(run(runner, X), wanted), "it is registered again when it runs"


def test_the_host_tier_spares_the_file(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4, transfer=Transfer(torch.device("cpu"), host_bytes=5 * LAYER_BYTES))
    wanted = expect(stack.write("a", 0), X)
    runner = stack.runner("a")
    run(runner, X)
    stack.keeper.shrink(runner.base, 0)
    (tmp_path / "a").unlink()
    assert torch.equal(run(runner, X), wanted)
