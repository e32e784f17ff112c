"""Elements come one by one, in order; whatever ends the producer ends the wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.core.errors import CapacityError, WorkerError
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.publication import Publication, PublicationRef, Subscription
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore

FOR_EVER_S = 3600.0
"""A wait that nothing but what the test does can end."""

OWNER, READER = WorkerId("w0.0"), WorkerId("w1.0")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[TensorStore, TensorStore]]:
    arenas = [SharedMemoryArena(str(tmp_path / name), 1 << 20) for name in (OWNER, READER)]
    owner, reader = TensorStore(OWNER, arenas[0]), TensorStore(READER, arenas[1])
    reader.add_peer(OWNER, arenas[0].path)
    yield owner, reader
    owner.close()
    reader.close()


@pytest.fixture
def ends(stores: tuple[TensorStore, TensorStore]) -> tuple[Publication, Subscription]:
    made = stores[0].publish(elements=3, slot_bytes=64)
    return made, stores[1].subscribe(made.ref)


def test_element_is_waited_for_and_later_ones_are_not(ends: tuple[Publication, Subscription]) -> None:
    made, subscription = ends
    seen: list[bytes] = []
    waiter = threading.Thread(target=lambda: seen.append(subscription.element(1, FOR_EVER_S)))
    waiter.start()
    made.publish(b"a")
    made.publish(b"bb")
    waiter.join(60)
    assert seen == [b"bb"]
    assert (subscription.published(), subscription.element(0, 0.0)) == (2, b"a")
    with pytest.raises(TimeoutError, match="no element within"):
        subscription.element(2, 0.01)


def test_publication_that_ends_early_has_no_further_elements(ends: tuple[Publication, Subscription]) -> None:
    made, subscription = ends
    made.publish(b"a")
    made.finish()
    made.finish()
    made.fail("too late")
    assert subscription.element(0, 0.0) == b"a"
    with pytest.raises(IndexError, match="ended after 1 elements"):
        subscription.element(1, FOR_EVER_S)
    with pytest.raises(RuntimeError, match="has ended"):
        made.publish(b"b")


def test_failure_of_the_producer_reaches_the_consumer_with_its_reason(
    ends: tuple[Publication, Subscription],
) -> None:
    made, subscription = ends
    made.publish(b"a")
    made.fail("out of memory " + "x" * 100)
    assert subscription.element(0, 0.0) == b"a"
    with pytest.raises(WorkerError, match=r"the producer failed: out of memory x+$") as failed:
        subscription.element(1, FOR_EVER_S)
    assert failed.value.exception_type == "PublicationFailed"


def test_what_does_not_fit_is_refused(ends: tuple[Publication, Subscription]) -> None:
    made, subscription = ends
    with pytest.raises(ValueError, match="61 bytes does not fit a slot of 64"):
        made.publish(b"x" * 61)
    for _ in range(3):
        made.publish(b"x" * 60)
    with pytest.raises(IndexError, match="room for 3 elements"):
        made.publish(b"x")
    for index in (-1, 3):
        with pytest.raises(IndexError, match="has none at"):
            subscription.element(index, FOR_EVER_S)


def test_guard_ends_a_wait(stores: tuple[TensorStore, TensorStore]) -> None:
    class Cancelled(Exception):
        pass

    def guard() -> None:
        raise Cancelled

    subscription = stores[1].subscribe(stores[0].publish(1).ref, guard)
    with pytest.raises(Cancelled):
        subscription.element(0, FOR_EVER_S)


def test_peer_that_is_let_go_while_it_is_waited_for_ends_the_wait(
    stores: tuple[TensorStore, TensorStore], ends: tuple[Publication, Subscription]
) -> None:
    failures: list[str] = []

    def consume() -> None:
        try:
            ends[1].element(0, FOR_EVER_S)
        except WorkerError as exc:
            failures.append(exc.exception_type)

    waiter = threading.Thread(target=consume)
    waiter.start()
    stores[1].remove_peer(OWNER)
    waiter.join(60)
    assert failures == ["LostTensor"]


def test_own_publication_can_be_subscribed_to(stores: tuple[TensorStore, TensorStore]) -> None:
    made = stores[0].publish(1)
    made.publish(b"mine")
    assert stores[0].subscribe(made.ref).element(0, 0.0) == b"mine"


def test_freeing_gives_all_of_a_publication_back(stores: tuple[TensorStore, TensorStore]) -> None:
    owner, _ = stores
    made = owner.publish(100)
    assert owner.used_bytes > 100 * 1024
    owner.free([made.ref.id, made.ref.id])
    assert owner.used_bytes == 0
    with pytest.raises(CapacityError):
        owner.publish(1 << 20)
    assert owner.used_bytes == 0, "also when there was room for the flag only"


def test_unmapped_owner_is_named(stores: tuple[TensorStore, TensorStore]) -> None:
    made = stores[0].publish(1)
    stores[1].remove_peer(OWNER)
    with pytest.raises(WorkerError, match=r"arena of worker w0\.0 is not mapped"):
        stores[1].subscribe(made.ref)


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=60), max_size=8), st.randoms(use_true_random=False))
def test_any_reader_sees_any_elements_in_any_order(elements: list[bytes], order: object) -> None:
    path = f"/dev/shm/comfyserverless-test-{os.getpid()}-publication"
    store = TensorStore(OWNER, SharedMemoryArena(path, 1 << 20))
    try:
        made = store.publish(len(elements), slot_bytes=64)
        subscription = store.subscribe(PublicationRef.decode(made.ref.encode()))
        for element in elements:
            made.publish(element)
        made.finish()
        indices = list(range(len(elements)))
        order.shuffle(indices)  # type: ignore[attr-defined]
        assert [subscription.element(index, 0.0) for index in indices] == [elements[i] for i in indices]
    finally:
        store.close()


# Publishes two elements, the second when asked to, and then stays as it is until it is killed.
PRODUCER = """
import sys
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore

store = TensorStore(WorkerId("w0.0"), SharedMemoryArena(sys.argv[1], 1 << 20))
made = store.publish(3)
made.publish(b"first")
print(made.ref.encode().hex(), flush=True)
sys.stdin.readline()
made.publish(b"second")
sys.stdin.readline()
"""


def test_elements_of_another_process_are_waited_for_and_its_death_ends_the_wait(tmp_path: Path) -> None:
    path = str(tmp_path / "arena")
    command = [sys.executable, "-c", PRODUCER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producer:
        assert producer.stdin is not None
        assert producer.stdout is not None
        ref = PublicationRef.decode(bytes.fromhex(producer.stdout.readline().decode()))
        store = TensorStore(READER, SharedMemoryArena(str(tmp_path / "mine"), 1 << 16))
        store.add_peer(OWNER, path)
        subscription = store.subscribe(ref)
        assert subscription.element(0, FOR_EVER_S) == b"first"
        waiter = threading.Timer(0.1, lambda: (producer.stdin.write(b"\n"), producer.stdin.flush()))  # type: ignore[union-attr]
        waiter.start()
        assert subscription.element(1, FOR_EVER_S) == b"second"
        waiter.join()
        killer = threading.Timer(0.1, producer.send_signal, [signal.SIGKILL])
        killer.start()
        with pytest.raises(WorkerError, match="producer of a published result is gone"):
            subscription.element(2, FOR_EVER_S)
        killer.join()
        assert subscription.element(1, 0.0) == b"second", "what was published can still be read"
        store.close()
