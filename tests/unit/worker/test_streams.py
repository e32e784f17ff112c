"""Callback outputs and inputs between two workers of this process."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.values import PublishedRef
from comfyserverless.dataplane.publication import Subscription
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.sdk.modelfn import IoSetup, ModelFn, Streamed
from comfyserverless.worker.execution import Execution
from comfyserverless.worker.lanes import Ticket
from tests.unit.worker.functions import Recorded

TIMEOUT_S = 60


class Count(ModelFn):
    """Make 3, 2, 1 times the input, each after a permit; the first is the last of the list."""

    name = "test.count"

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.error: Exception | None = None

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("x")
        io.add_output("list", callback=True)

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"list": Streamed({"a": 3}, self._make(inputs["x"]))}

    def _make(self, x: torch.Tensor) -> Iterator[tuple[str, int, torch.Tensor]]:
        for at in (2, 1, 0):
            assert self.permits.acquire(timeout=TIMEOUT_S)
            if self.error is not None:
                raise self.error
            yield "a", at, x * (at + 1)


class Read(ModelFn):
    """Return the element of a list that is asked for, and its length."""

    name = "test.read"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("list", callback=True)
        io.add_input("at")
        io.add_output("element")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        found = inputs["list"]["a"]
        return {"element": found[inputs["at"]] + 0, "length": len(found), "keys": list(inputs["list"])}


class Site:
    """One worker: its store, and its functions on threads."""

    def __init__(self, folder: Path, name: str) -> None:
        self.arena = SharedMemoryArena(str(folder / name), 1 << 20)
        self.store = TensorStore(WorkerId(name), self.arena)
        self.count = Count()
        self.announced: SimpleQueue[wire.InvocationPublished] = SimpleQueue()
        functions: list[ModelFn] = [self.count, Read()]
        self.execution = Execution(
            {each.name: each for each in functions}, self.store, Recorded(), self.announced.put
        )
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.is_cancelled = False

    def start(self, function: str, *, publishes: bool = True, **inputs: Any) -> None:
        call = wire.RunInvocation(
            InvocationId(function), function, "gpu", values.encode(inputs), publishes=publishes
        )
        ticket = Ticket(lambda: not self.is_cancelled, lambda: self.is_cancelled)
        threading.Thread(target=lambda: self.answers.put(self.execution.run(call, ticket))).start()

    def produce(self) -> PublishedRef:
        """Start the producer; returns what consumers are given."""
        self.start("test.count", x=self.store.put(torch.ones(4)))
        return PublishedRef(self.announced.get(timeout=TIMEOUT_S).publication)

    def answer(self) -> Any:
        return self.answers.get(timeout=TIMEOUT_S)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    pair = Site(tmp_path, "w0.0"), Site(tmp_path, "w1.0")
    for one, other in (pair, reversed(pair)):
        one.store.add_peer(WorkerId(other.arena.path.rpartition("/")[2]), other.arena.path)
    yield pair
    for site in pair:
        site.count.permits.release(9)
        site.store.close()


def test_consumer_gets_an_element_before_its_producer_has_made_the_next(sites: tuple[Site, Site]) -> None:
    producer, consumer = sites
    ref = producer.produce()
    consumer.start("test.read", list=ref, at=2)
    producer.count.permits.release()
    outputs = values.decode(consumer.answer().outputs)
    assert consumer.store.get(outputs["element"]).tolist() == [3.0] * 4
    assert (outputs["length"], outputs["keys"]) == (3, ["a"])
    assert producer.answers.empty()


def test_element_that_comes_later_is_waited_for_and_the_wait_is_not_charged(
    sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, consumer = sites
    waits, element = threading.Event(), Subscription.element

    def noted(self: Subscription, index: int, timeout_s: float) -> bytes:
        if index == 1:  # before it are the lengths, which are there
            waits.set()
        return element(self, index, timeout_s)

    monkeypatch.setattr(Subscription, "element", noted)
    ref = producer.produce()
    begin_s = time.perf_counter()
    consumer.start("test.read", list=ref, at=-3)
    assert waits.wait(TIMEOUT_S)
    time.sleep(0.2)
    producer.count.permits.release(3)
    answer = consumer.answer()
    passed_s = time.perf_counter() - begin_s
    assert consumer.store.get(values.decode(answer.outputs)["element"]).tolist() == [1.0] * 4
    assert answer.timing.waited_s > 0.15
    assert answer.timing.total_s() + answer.timing.waited_s < passed_s


def test_producers_result_names_the_tensors_that_it_published(sites: tuple[Site, Site]) -> None:
    producer, _ = sites
    producer.produce()
    producer.count.permits.release(3)
    (lists,) = values.decode(producer.answer().outputs).values()
    assert [float(producer.store.get(ref)[0]) for ref in lists["a"]] == [1.0, 2.0, 3.0]


def test_without_a_wish_for_elements_nothing_is_published(sites: tuple[Site, Site]) -> None:
    producer, _ = sites
    producer.count.permits.release(3)
    producer.start("test.count", publishes=False, x=producer.store.put(torch.ones(4)))
    lists = values.decode(producer.answer().outputs)["list"]
    assert [float(producer.store.get(ref)[0]) for ref in lists["a"]] == [1.0, 2.0, 3.0]
    assert producer.announced.empty()


def test_failure_of_the_producer_ends_a_waiting_consumer_at_once(sites: tuple[Site, Site]) -> None:
    producer, consumer = sites
    consumer.start("test.read", list=producer.produce(), at=0)
    producer.count.error = ValueError("no more")
    producer.count.permits.release()
    answer = consumer.answer()
    assert (answer.exception_type, producer.answer().exception_type) == ("PublicationFailed", "ValueError")
    assert "no more" in answer.message


def test_end_of_the_producers_worker_ends_a_waiting_consumer(sites: tuple[Site, Site]) -> None:
    producer, consumer = sites
    consumer.start("test.read", list=producer.produce(), at=0)
    fcntl.flock(producer.arena._fd, fcntl.LOCK_UN)  # what the end of its process does
    assert consumer.answer().exception_type == "LostTensor"


def test_cancellation_ends_a_waiting_consumer(sites: tuple[Site, Site]) -> None:
    producer, consumer = sites
    consumer.start("test.read", list=producer.produce(), at=0)
    consumer.is_cancelled = True
    assert isinstance(consumer.answer(), wire.InvocationCancelled)


def test_cancelled_producer_stops_before_its_next_element_and_ends_its_consumers(
    sites: tuple[Site, Site],
) -> None:
    producer, consumer = sites
    consumer.start("test.read", list=producer.produce(), at=0)
    producer.is_cancelled = True
    producer.count.permits.release()
    assert isinstance(producer.answer(), wire.InvocationCancelled)
    assert consumer.answer().exception_type == "PublicationFailed"


def test_what_a_failed_producer_published_stays_until_its_publication_is_freed(
    sites: tuple[Site, Site],
) -> None:
    producer, consumer = sites
    ref = producer.store.put(torch.ones(4))
    used_bytes = producer.store.used_bytes
    producer.start("test.count", x=ref)
    published = producer.announced.get(timeout=TIMEOUT_S)
    producer.count.permits.release()
    consumer.start("test.read", list=PublishedRef(published.publication), at=2)
    element = values.decode(consumer.answer().outputs)["element"]
    producer.count.error = ValueError("no more")
    producer.count.permits.release()
    producer.answer()
    # Who was told of the element before may still copy it.
    consumer.start("test.read", list=PublishedRef(published.publication), at=2)
    again = values.decode(consumer.answer().outputs)["element"]
    assert torch.equal(consumer.store.get(again), consumer.store.get(element))
    producer.execution.free((published.id,))
    assert producer.store.used_bytes == used_bytes


def test_what_a_finished_producer_published_stays_with_its_result(sites: tuple[Site, Site]) -> None:
    producer, _ = sites
    producer.start("test.count", x=producer.store.put(torch.ones(4)))
    published = producer.announced.get(timeout=TIMEOUT_S)
    producer.count.permits.release(3)
    lists = values.decode(producer.answer().outputs)["list"]
    producer.execution.free((published.id,))
    assert [float(producer.store.get(ref)[0]) for ref in lists["a"]] == [1.0, 2.0, 3.0]
