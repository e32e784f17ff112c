from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from comfyserverless.core import values
from comfyserverless.core.errors import CapacityError, WorkerError
from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.core.values import TensorRef
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore

Make = Callable[..., TensorStore]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    arenas: list[SharedMemoryArena] = []

    def build(worker: str = "w0.0", arena_bytes: int = 1 << 20) -> TensorStore:
        arenas.append(SharedMemoryArena(str(tmp_path / worker), arena_bytes))
        return TensorStore(WorkerId(worker), arenas[-1])

    yield build
    for arena in arenas:
        arena.close()


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 7), (0, 4), (2, 0)], ids=str)
def test_tensor_comes_back_equal_here_and_at_a_peer(
    make: Make, tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    store, peer = make("w0.0"), make("w1.0")
    tensor = (torch.rand(shape) * 3).to(dtype)
    ref = store.put(tensor)
    assert values.decode(values.encode(ref)) == ref
    peer.add_peer(WorkerId("w0.0"), str(tmp_path / "w0.0"))
    for back in (store.get(ref), peer.get(ref)):
        assert back.dtype == dtype
        assert back.shape == shape
        assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_ids_are_unique_and_name_the_worker(make: Make) -> None:
    store = make("w3.1")
    refs = [store.put(torch.zeros(1)) for _ in range(5)]
    assert len({ref.id for ref in refs}) == 5
    assert all(ref.id.startswith("w3.1:") and ref.worker == "w3.1" for ref in refs)


def test_put_stores_a_strided_tensor_in_c_order(make: Make) -> None:
    store = make()
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    back = store.get(store.put(tensor))
    assert back.is_contiguous()
    assert torch.equal(back, tensor)


def test_own_tensor_is_a_view_and_not_a_copy(make: Make) -> None:
    store = make()
    ref = store.put(torch.zeros(4))
    assert store.get(ref).data_ptr() == store.get(ref).data_ptr()


def test_view_that_is_put_again_goes_out_as_the_same_ref(make: Make) -> None:
    store = make()
    ref = store.put(torch.arange(6.0))
    used = store.used_bytes
    assert store.put(store.get(ref)) == ref
    assert store.put_tree({"a": [store.get(ref)]}) == {"a": [ref]}
    assert store.used_bytes == used


def test_part_or_other_form_of_a_view_is_copied(make: Make) -> None:
    store = make()
    ref = store.put(torch.arange(6.0))
    view = store.get(ref)
    for other in (view[:3], view.reshape(2, 3), view.view(torch.int32), view[1:]):
        copied = store.put(other)
        assert copied.id != ref.id
        assert torch.equal(store.get(copied), other)


def test_block_of_a_freed_tensor_is_reused_only_after_its_last_view(make: Make) -> None:
    store = make(arena_bytes=4096)
    ref = store.put(torch.full((1024,), 1.0))
    view = store.get(ref)[10:20]
    store.free([ref.id])
    with pytest.raises(CapacityError):
        store.put(torch.zeros(1024))
    assert (view == 1.0).all()
    del view
    gc.collect()
    assert torch.equal(store.get(store.put(torch.zeros(1024))), torch.zeros(1024))


def test_view_of_a_freed_tensor_that_is_put_becomes_a_new_tensor(make: Make) -> None:
    store = make()
    ref = store.put(torch.arange(4.0))
    view = store.get(ref)
    store.free([ref.id])
    again = store.put(view)
    assert again.id != ref.id
    assert torch.equal(store.get(again), view)


def test_freed_or_foreign_tensor_is_refused(make: Make) -> None:
    store = make()
    ref = store.put(torch.zeros(2))
    store.free([ref.id, ref.id, TensorId("w9.9:1")])
    with pytest.raises(WorkerError, match="not in this worker's arena"):
        store.get(ref)
    with pytest.raises(WorkerError, match=r"arena of worker w9\.9 is not mapped"):
        store.get(TensorRef(TensorId("w9.9:1"), (1,), "float32", 4, WorkerId("w9.9"), 0))


def test_all_space_comes_back_when_all_is_freed(make: Make) -> None:
    store = make()
    refs = [store.put(torch.zeros(size)) for size in (1, 1000, 0, 77)]
    _ = [store.get(ref) for ref in refs]
    del _
    store.free(ref.id for ref in refs)
    assert store.used_bytes == 0
    assert store.total_bytes == 1 << 20


def test_peer_tensor_is_fetched_once_while_it_is_in_use(make: Make, tmp_path: Path) -> None:
    owner, reader = make("w0.0"), make("w1.0")
    ref = owner.put(torch.arange(10.0))
    reader.add_peer(WorkerId("w0.0"), str(tmp_path / "w0.0"))
    first = reader.get(ref)
    assert reader.get(ref).data_ptr() == first.data_ptr()
    assert first.data_ptr() % 64 == 0
    assert reader.used_bytes == 0


def test_fetched_tensor_outlives_its_owner(make: Make, tmp_path: Path) -> None:
    owner, reader = make("w0.0"), make("w1.0")
    ref = owner.put(torch.arange(10.0))
    reader.add_peer(WorkerId("w0.0"), str(tmp_path / "w0.0"))
    fetched = reader.get(ref)
    reader.remove_peer(WorkerId("w0.0"))
    assert torch.equal(fetched, torch.arange(10.0))
    del fetched
    gc.collect()
    with pytest.raises(WorkerError, match="is lost"):
        reader.get(ref)


def test_tree_turns_tensors_into_refs_and_back(make: Make, tmp_path: Path) -> None:
    owner, reader = make("w0.0"), make("w1.0")
    tree = {"x": torch.ones(3), "list": [1, "a", None, (torch.zeros(2), b"b")]}
    stored = owner.put_tree(tree)
    reader.add_peer(WorkerId("w0.0"), str(tmp_path / "w0.0"))
    back, transfer_s = reader.get_tree(values.decode(values.encode(stored)))
    assert torch.equal(back["x"], torch.ones(3))
    assert back["list"][:3] == [1, "a", None]
    assert torch.equal(back["list"][3][0], torch.zeros(2))
    assert back["list"][3][1] == b"b"
    assert transfer_s > 0


def test_tree_that_does_not_fit_leaves_nothing_behind(make: Make) -> None:
    store = make(arena_bytes=8192)
    kept = store.put(torch.zeros(8))
    used = store.used_bytes
    with pytest.raises(CapacityError):
        store.put_tree([store.get(kept), torch.zeros(500), torch.zeros(5000)])
    assert store.used_bytes == used
    assert torch.equal(store.get(kept), torch.zeros(8))


def test_zero_size_tensor_takes_no_space(make: Make) -> None:
    store = make()
    store.put(torch.zeros(0, 3))
    assert store.used_bytes == 0


def test_bad_dtype_name_is_refused(make: Make) -> None:
    store = make()
    ref = store.put(torch.zeros(1))
    forged = TensorRef(ref.id, ref.shape, "save", ref.size_bytes, ref.worker, ref.offset_bytes)
    with pytest.raises(ValueError, match="unknown dtype 'save'"):
        store.get(forged)


def test_store_trims_its_arena(make: Make, tmp_path: Path) -> None:
    store = make(arena_bytes=512 << 20)
    store.free([store.put(torch.zeros(25 << 20, dtype=torch.float32)).id])
    for _ in range(2):
        store.trim()
    assert os.stat(tmp_path / "w0.0").st_blocks * 512 <= 64 << 20
