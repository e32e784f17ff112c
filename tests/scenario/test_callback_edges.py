"""Overlap on real lanes, arenas and dispatcher: the values, who runs beside whom, and that nobody hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from comfyserverless.control.dispatch import Call
from comfyserverless.core import values
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import DEFAULT_TENANT, InvocationId, NodeId, PromptId
from comfyserverless.core.values import Output, Value
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.sdk.modelfn import IoSetup, ModelFn, Streamed
from tests.support.cluster import Cluster

LENGTH = 3
TIMEOUT_S = 120
TRIES = 10


class Meeting:
    """Know how many calls are in the midst of their work at once; each goes on when so many have been.

    together: 0 for a place where nobody waits for others, but all for `open`.
    """

    def __init__(self, together: int = 0) -> None:
        self._together = together
        self._changed = threading.Condition()
        self._now = 0
        self.most = 0
        self._is_open = together > 0

    def open(self) -> None:
        """Let all go on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Be in the midst until enough others have been, too."""
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            is_enough = self._changed.wait_for(lambda: self._is_open and self.most >= self._together, TIMEOUT_S)
            self._now -= 1
            assert is_enough, f"{self.most} of {self._together} came"


MakeMeeting = Callable[..., tuple[str, Meeting]]

#: by name: where calls meet
MEETINGS: dict[str, Meeting] = {}


@pytest.fixture
def meeting() -> Iterator[MakeMeeting]:
    """Return what makes a meeting of so many calls, and its name."""

    def make(together: int = 0) -> tuple[str, Meeting]:
        name = f"meeting {len(MEETINGS)}"
        MEETINGS[name] = made = Meeting(together)
        return name, made

    yield make
    for each in MEETINGS.values():
        each.open()
    MEETINGS.clear()


def _total(inputs: Mapping[str, Any]) -> torch.Tensor:
    """Add up the state and all elements of all lists, in order."""
    total = inputs["state"] if isinstance(inputs["state"], torch.Tensor) else torch.full((4,), 1.0)
    for lists in inputs["lists"]:
        for at in range(len(lists["0"])):
            total = total + lists["0"][at]
    return total


class Make(ModelFn):
    """Make a list from a state and lists; each element comes after `pause_s`, and may need one of each list.

    meets: the name of a meeting to which it goes between its first element and the others, if any.
    """

    name = "make"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("state")
        io.add_input("lists", callback=True)
        io.add_input("pause_s")
        io.add_input("meets")
        io.add_output("list", callback=True)

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"list": Streamed({"0": LENGTH}, self._make(inputs))}

    def _make(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, int, torch.Tensor]]:
        base = inputs["state"] if isinstance(inputs["state"], torch.Tensor) else torch.full((4,), 1.0)
        for at in reversed(range(LENGTH)):
            time.sleep(inputs["pause_s"])
            if inputs["meets"] and at == LENGTH - 2:
                MEETINGS[inputs["meets"]].wait()
            element = base * (at + 1)
            for lists in inputs["lists"]:
                element = element + lists["0"][at]
            yield "0", at, torch.remainder(element, 97.0)


class Step(ModelFn):
    """Make a state from a state and lists: it needs none of the elements before `head_s` are over.

    meets: the name of a meeting to which it goes before it needs an element, if any.
    """

    name = "step"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("state")
        io.add_input("lists", callback=True)
        io.add_input("head_s")
        io.add_input("tail_s")
        io.add_input("meets")
        io.add_output("state")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        time.sleep(inputs["head_s"])
        if inputs["meets"]:
            MEETINGS[inputs["meets"]].wait()
        total = _total(inputs)
        time.sleep(inputs["tail_s"])
        return {"state": torch.remainder(total, 97.0)}


class Break(ModelFn):
    """Publish one element, and fail."""

    name = "break"

    def setup_io(self, io: IoSetup) -> None:
        io.add_output("list", callback=True)

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"list": Streamed({"0": LENGTH}, self._make())}

    def _make(self) -> Iterator[tuple[str, int, torch.Tensor]]:
        yield "0", LENGTH - 1, torch.ones(4)
        time.sleep(0.05)
        raise ValueError("broken")


FUNCTIONS: dict[str, ModelFn] = {each.name: each for each in (Make(), Step(), Break())}
PORTS = {"make": "list", "break": "list", "step": "state"}


@asynccontextmanager
async def cluster_of(folder: Path, workers: int) -> AsyncIterator[Cluster]:
    """Run a cluster; it must end without a thread that hangs."""
    cluster = Cluster(folder, FUNCTIONS)
    for _ in range(workers):
        cluster.join()
    try:
        yield cluster
    finally:
        async with asyncio.timeout(TIMEOUT_S):
            await cluster.close()


class Story:
    """One run on a cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.run = PromptId(name)
        self.names: list[InvocationId] = []
        self.outcomes: dict[InvocationId, WorkerError | None] = {}

    def add(self, function: str, **inputs: Value) -> Output:
        """Submit an invocation; `lists` are callback inputs, and all else is needed before it starts."""
        if function != "break":
            inputs.setdefault("meets", "")
        hard = {output.invocation for name in inputs if name != "lists" for output in _outputs(inputs[name])}
        soft = {output.invocation for output in _outputs(inputs.get("lists"))} - hard
        key = InvocationId(f"{self.run}/{len(self.names)}")
        spec = InvocationSpec(
            id=key,
            run=self.run,
            tenant=DEFAULT_TENANT,
            node=NodeId("1"),
            function=function,
            lane="gpu",
            cost_key=function,
            needs=tuple(sorted(hard)),
            callback_needs=tuple(sorted(soft)),
        )
        self.names.append(key)
        call = Call(spec, dict(inputs), lambda _, error: self.outcomes.update({key: error}))
        self.cluster.submit(call)
        return Output(key, PORTS[function])

    async def tensor(self, output: Output) -> list[float]:
        """Wait for a state, and return its numbers."""
        ref = await self.cluster.dispatcher.value(output)
        numbers: list[float] = self.cluster.store_of(ref.worker).get(ref).tolist()
        return numbers

    def close(self) -> None:
        self.cluster.dispatcher.unpin(self.names, "end")
        self.cluster.dispatcher.close_run(self.run)


def _outputs(value: Value) -> list[Output]:
    return values.outputs_in(value)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, for a limited time."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so():  # noqa: ASYNC110 - what changes is not ours to signal
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("workers", "nets", "together"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (2, 2, 2), (3, 2, 3)]
)
async def test_a_step_runs_beside_its_lists_where_lanes_are_free(
    tmp_path: Path, meeting: MakeMeeting, workers: int, nets: int, together: int
) -> None:
    name, met = meeting(together)
    async with cluster_of(tmp_path, workers) as cluster:
        story = Story(cluster, "run")
        lists: list[Value] = [
            story.add("make", state=0, lists=[], pause_s=0.0, meets=name) for _ in range(nets)
        ]
        step = story.add("step", state=0, lists=lists, head_s=0.0, tail_s=0.0, meets=name)
        assert await story.tensor(step) == [1.0 + 6.0 * nets] * 4
        story.close()
        await until(cluster.runs_nothing)
        assert set(cluster.dispatcher.counts().values()) == {0}
        await until(lambda: cluster.used_bytes() == 0)
    assert met.most == together, "so many are in the midst of their work at once, and no more"


async def test_waiting_is_told_apart_and_not_charged(tmp_path: Path) -> None:
    for attempt in range(TRIES):  # what a thread waits for a core is charged, too: it may be more
        (tmp_path / str(attempt)).mkdir()
        async with cluster_of(tmp_path / str(attempt), 2) as cluster:
            story = Story(cluster, "run")
            made = story.add("make", state=0, lists=[], pause_s=0.1)
            await story.tensor(story.add("step", state=0, lists=[made], head_s=0.0, tail_s=0.1))
            waited_s = cluster.dispatcher.waited_s(DEFAULT_TENANT)["gpu"]
            charged_s = cluster.dispatcher.service_s(DEFAULT_TENANT)["gpu"]
        if waited_s > 0.2 and charged_s < 0.3 + 0.1 + 0.5 * waited_s:
            return
    raise AssertionError((waited_s, charged_s))


async def test_failure_of_a_producer_ends_its_consumer_and_is_what_the_run_is_told(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        story = Story(cluster, "run")
        step = story.add("step", state=0, lists=[story.add("break")], head_s=0.0, tail_s=0.0)
        with pytest.raises(WorkerError, match="broken"):
            await story.tensor(step)
        story.close()
        await until(cluster.runs_nothing)
        assert set(cluster.dispatcher.counts().values()) == {0}
        await until(lambda: cluster.used_bytes() == 0)


async def test_interrupt_ends_a_consumer_that_waits_at_once(tmp_path: Path, meeting: MakeMeeting) -> None:
    name, gate = meeting()
    async with cluster_of(tmp_path, 2) as cluster:
        story = Story(cluster, "run")
        made = story.add("make", state=0, lists=[], pause_s=0.0, meets=name)
        story.add("step", state=0, lists=[made], head_s=0.0, tail_s=0.0)
        running_on = cluster.dispatcher.running_on
        await until(lambda: all(running_on(worker) for worker in cluster.sites))
        (owner,) = (worker for worker in cluster.sites if made.invocation in running_on(worker))
        (other,) = (worker for worker in cluster.sites if worker != owner)
        story.close()
        await until(lambda: not running_on(other))
        assert running_on(owner), "the producer is held, and the consumer does not wait for it any more"
        gate.open()
        await until(cluster.runs_nothing)


async def test_consumer_of_a_producer_that_dies_runs_again_with_it(
    tmp_path: Path, meeting: MakeMeeting
) -> None:
    name, gate = meeting()
    async with cluster_of(tmp_path, 2) as cluster:
        story = Story(cluster, "run")
        made = story.add("make", state=0, lists=[], pause_s=0.0, meets=name)
        step = story.add("step", state=0, lists=[made], head_s=0.0, tail_s=0.0)
        await until(lambda: all(cluster.dispatcher.running_on(worker) for worker in cluster.sites))
        (owner,) = (w for w in cluster.sites if made.invocation in cluster.dispatcher.running_on(w))
        cluster.lose(owner)
        gate.open()
        async with asyncio.timeout(TIMEOUT_S):
            assert await story.tensor(step) == [7.0] * 4


def _random_run(story: Story, random: Random) -> list[Output]:
    """Submit a random graph of makers, which may read from each other, and steps; returns the steps."""
    lists: list[Output] = []
    states: list[Output] = []
    for _ in range(random.randint(2, 9)):
        state: Value = random.choice(states) if states and random.random() < 0.5 else 0
        taken: list[Value] = list(random.sample(lists, min(len(lists), random.randrange(3))))
        if random.random() < 0.6:
            lists.append(story.add("make", state=state, lists=taken, pause_s=random.choice((0.0, 0.004))))
        else:
            waits = {"head_s": random.choice((0.0, 0.005)), "tail_s": random.choice((0.0, 0.005))}
            states.append(story.add("step", state=state, lists=taken, **waits))
    states.append(story.add("step", state=0, lists=list(lists), head_s=0.0, tail_s=0.0))
    return states


async def _serial(folder: Path, seed: int, count: int) -> list[list[list[float]]]:
    """Return the numbers that one undisturbed worker gives, by run."""
    async with cluster_of(folder, 1) as cluster:
        random = Random(seed)
        stories = [Story(cluster, f"r{index}") for index in range(count)]
        graphs = [_random_run(story, random) for story in stories]
        return [
            [await story.tensor(each) for each in graph] for story, graph in zip(stories, graphs, strict=True)
        ]


@pytest.mark.parametrize("seed", range(8))
async def test_nobody_hangs_and_no_bit_changes_whatever_is_killed_or_cancelled(
    tmp_path: Path, seed: int
) -> None:
    count = 4
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    expected = await _serial(tmp_path / "one", seed, count)
    chance = Random(f"chance {seed}")
    async with cluster_of(tmp_path / "many", chance.randint(1, 4)) as cluster:
        random = Random(seed)
        stories = [Story(cluster, f"r{index}") for index in range(count)]
        graphs = [_random_run(story, random) for story in stories]
        interrupted = {index for index in range(count) if chance.random() < 0.3}
        for index in interrupted:
            cluster.loop.call_later(chance.uniform(0.0, 0.1), stories[index].close)
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(chance.uniform(0.0, 0.04))
            cluster.join()
            cluster.lose(chance.choice(list(cluster.sites)[:-1]))
        async with asyncio.timeout(TIMEOUT_S):
            for index in sorted(set(range(count)) - interrupted):
                for output, numbers in zip(graphs[index], expected[index], strict=True):
                    await cluster.dispatcher.value(output)
                    assert await stories[index].tensor(output) == numbers, (seed, index)
        await asyncio.sleep(0.1)  # by then those that are to be interrupted are
        for index in set(range(count)) - interrupted:
            stories[index].close()
        await until(cluster.runs_nothing)
        assert set(cluster.dispatcher.counts().values()) == {0}, cluster.dispatcher.counts()
        await until(lambda: cluster.used_bytes() == 0)
