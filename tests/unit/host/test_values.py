"""What packs get, and what becomes of what they return."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.values import FileRef, ObjectRef, TensorRef, VaeRef, encode
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host import values
from comfyserverless.host.values import Codec, ObjectStore

HOST = WorkerId("host.0")


class Basket:
    """An object of a pack."""


class Vae:
    """What stands for a VAE in this test."""

    def __init__(self, ref: VaeRef) -> None:
        self.ref = ref


class Size(IntEnum):
    """A number with a name."""

    BIG = 7


@pytest.fixture
def objects() -> ObjectStore:
    return ObjectStore(HOST)


@pytest.fixture
def codec(tmp_path: Path, objects: ObjectStore) -> Iterator[Codec]:
    store = TensorStore(HOST, SharedMemoryArena(str(tmp_path / "arena"), 1 << 20))
    yield Codec(store, objects)
    store.close()


def round_trip(codec: Codec, value: Any) -> Any:
    tree = codec.save(value)
    encode(tree)
    return codec.load(tree)


@pytest.mark.parametrize(
    "value", [None, True, 3, 0.5, "text", [1, [2]], {"a": [1, {"b": None}]}, (1 << 64) - 1]
)
def test_plain_values_travel_as_they_are(codec: Codec, objects: ObjectStore, value: Any) -> None:
    assert codec.save(value) == value
    assert round_trip(codec, value) == value
    assert len(objects) == 0


@pytest.mark.parametrize(
    ("value", "plain"), [(np.float32(0.5), 0.5), (np.int64(3), 3), (Size.BIG, 7), (np.bool_(True), True)]
)
def test_numbers_in_disguise_become_plain_ones(codec: Codec, value: Any, plain: Any) -> None:
    saved = codec.save(value)
    assert saved == plain
    assert type(saved) is type(plain)


@pytest.mark.parametrize(
    "value", [(1, 2), Basket(), {1: 2}, [Basket()], {"a": (1,)}, 1 << 70, "\ud800", np.zeros(3)]
)
def test_what_has_no_form_stays_the_same_object(codec: Codec, objects: ObjectStore, value: Any) -> None:
    tree = codec.save(value)
    assert type(tree) is ObjectRef
    assert codec.load(tree) is value
    objects.free([tree.id])
    with pytest.raises(WorkerError, match="not in this process"):
        codec.load(tree)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((512, 0.5), "(512, 0.5)"),
        ((1,), "(1,)"),
        ({1: {"a"}, None: b"x"}, "{1: {'a'}, None: b'x'}"),
        ([Basket(), torch.zeros(1, 2)], f"[<{Basket.__module__}.Basket object>, tensor of (1, 2)]"),
        (1 << 70, str(1 << 70)),
        pytest.param(10**5000, "<builtins.int object>", id="long"),
        (tuple(range(1000)), f"({', '.join(map(str, range(100)))}, ...)"),
        ((((((1,),),),),), "(((((...,),),),),)"),
        (Basket(), ""),
    ],
)
def test_people_can_read_what_stays(objects: ObjectStore, value: Any, text: str) -> None:
    assert objects.put(value).text == text


def test_tensors_are_copies_that_may_be_written_to(codec: Codec) -> None:
    picture = torch.rand(1, 4, 4, 3)
    tree = codec.save(picture)
    first, second = codec.load(tree), codec.load(tree)
    first.zero_()
    assert torch.equal(second, picture)


def test_tensor_that_cannot_be_stored_as_such_stays(codec: Codec) -> None:
    for odd in (torch.eye(3).to_sparse(), torch.empty(3, device="meta")):
        assert codec.load(codec.save(odd)) is odd


def test_conditioning_keeps_its_form_around_an_object_of_a_pack(codec: Codec) -> None:
    basket = Basket()
    ((cond, options),) = tree = codec.save([[torch.ones(1, 2), {"strength": 0.5, "hooks": basket}]])
    assert type(cond) is TensorRef
    assert options["strength"] == 0.5
    assert type(options["hooks"]) is ObjectRef
    assert codec.load(tree)[0][1]["hooks"] is basket


def test_latent_keeps_its_form_around_an_object_of_a_pack(codec: Codec) -> None:
    tree = codec.save({"samples": torch.ones(1, 4, 2, 2), "note": Basket()})
    assert type(tree["samples"]) is TensorRef
    assert type(tree["note"]) is ObjectRef


@pytest.mark.parametrize(
    "value",
    [list(range(60_000)), {str(number): number for number in range(60_000)}, [[0] * 1000 for _ in range(60)]],
    ids=["list", "dict", "rows"],
)
def test_value_that_others_would_wait_for_stays(codec: Codec, value: Any) -> None:
    tree = codec.save(value)
    assert type(tree) is ObjectRef
    assert codec.load(tree) is value


def test_what_was_put_for_a_value_that_stays_is_given_back(codec: Codec) -> None:
    before = codec._store.used_bytes
    value = [torch.ones(100), Basket()]
    assert codec.load(codec.save(value)) is value
    assert codec._store.used_bytes == before


def test_handles_are_objects_for_packs_and_handles_for_others(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "_wraps", {})
    monkeypatch.setattr(values, "_unwraps", {})
    handle = VaeRef(FileRef("/vae"))
    assert codec.load(handle) is handle
    values.register(VaeRef, wrap=Vae, unwrap_type=Vae, unwrap=lambda vae: vae.ref)
    loaded = codec.load({"vae": handle})["vae"]
    assert isinstance(loaded, Vae)
    assert codec.save([loaded]) == [handle]

    class Patched(Vae):
        """A subclass of a pack."""

    assert codec.save(Patched(handle)) == handle


def test_options_of_ours_become_what_packs_expect(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_option_loads", {})
    values.register_option("control", lambda chain: ("chain", chain))
    assert codec.load({"control": [1], "other": [1]}) == {"control": ("chain", [1]), "other": [1]}
    assert codec.load({"control": None}) == {"control": None}


def test_arguments_of_a_request_are_saved_one_by_one(codec: Codec) -> None:
    made: list[Any] = []
    tree = codec.save_arguments(
        {"class_type": "X", "inputs": {"a": Basket(), "b": torch.ones(2), "c": 1}}, made
    )
    assert type(tree["inputs"]["a"]) is ObjectRef
    assert type(tree["inputs"]["b"]) is TensorRef
    assert tree["inputs"]["c"] == 1
    codec.free(made)
    with pytest.raises(WorkerError):
        codec.load(tree["inputs"]["b"])
