"""`comfy.model_management`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.host.devices import loading
from tests.support.pack_modules import RememberingBridge, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as bridge:
        yield bridge
    loading.current_loaded_models.clear()


@pytest.fixture
def management(bridge: RememberingBridge) -> Any:
    return module("comfy.model_management")


class Patcher:
    """What packs hand over: their own module with its devices."""

    load_device = offload_device = torch.device("cpu")

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.moves: list[str] = []

    def patch_model(self, device_to: Any = None) -> None:
        self.moves.append(f"to {device_to}")

    def unpatch_model(self, device_to: Any = None) -> None:
        self.moves.append(f"back to {device_to}")

    def model_size(self) -> int:
        return 80


class Handle:
    """A model of the server's own: its weights are on the workers."""

    load_device = offload_device = torch.device("cpu")
    model = None


def test_models_of_packs_come_to_the_device_once_and_leave_together(management: Any) -> None:
    patcher = Patcher()
    management.load_models_gpu([patcher, Handle()], memory_required=100)
    management.load_model_gpu(patcher)
    assert patcher.moves == ["to cpu"]
    assert management.loaded_models() == [patcher]
    assert management.current_loaded_models[0].model_memory() == 80
    management.unload_all_models()
    assert patcher.moves == ["to cpu", "back to cpu"]
    assert management.loaded_models() == []


def test_a_model_that_nobody_uses_any_more_is_forgotten(management: Any) -> None:
    management.load_model_gpu(Patcher())
    gc.collect()
    management.cleanup_models()
    assert management.current_loaded_models == []


def test_models_leave_the_oldest_first_until_there_is_room(
    management: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young = Patcher(), Patcher()
    management.load_models_gpu([old])
    management.load_models_gpu([young])
    for loaded in management.current_loaded_models:
        loaded.device = torch.device("cuda", 0)
    free = iter((10, 100, 100))
    monkeypatch.setattr(loading, "get_free_memory", lambda device: next(free))
    monkeypatch.setattr(loading, "soft_empty_cache", lambda: None)
    left = management.free_memory(50, torch.device("cuda", 0))
    assert [each.model for each in left] == [old]
    assert young.moves == ["to cpu"]


def test_loading_is_a_point_where_a_stopped_prompt_ends(management: Any, bridge: RememberingBridge) -> None:
    assert not management.processing_interrupted()
    management.interrupt_current_processing()
    assert management.processing_interrupted()
    with pytest.raises(management.InterruptProcessingException):
        management.load_models_gpu([])
    with pytest.raises(management.InterruptProcessingException):
        management.throw_exception_if_processing_interrupted()


def test_devices_and_types_are_those_of_a_process_without_gpu(management: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("THIS MACHINE HAS A GPU: what is said without one was not tested")
    cpu = torch.device("cpu")
    assert management.get_torch_device() == management.unet_offload_device() == cpu
    assert management.get_torch_device_name(cpu) == "cpu"
    assert management.unet_dtype(cpu) == management.vae_dtype(cpu, [torch.float16]) == torch.float32
    assert management.unet_manual_cast(torch.float16, cpu) == torch.float32
    assert management.unet_manual_cast(torch.float32, cpu) is None
    assert not management.should_use_fp16(cpu)
    assert management.get_autocast_device(cpu) == "cpu"
    assert management.vram_state is management.VRAMState.DISABLED
    assert 0 < management.get_free_memory() <= management.get_total_memory()
    assert management.get_free_memory(cpu, torch_free_too=True)[1] > 0


def test_tensors_are_cast_and_sizes_counted(management: Any) -> None:
    tensor = torch.ones(2)
    assert management.cast_to_device(tensor, "cpu", torch.float16).dtype == torch.float16
    assert management.cast_to_device(tensor, "cpu", torch.float32) is tensor
    assert management.cast_to_device(tensor, "cpu", torch.float32, copy=True) is not tensor
    assert management.module_size(torch.nn.Linear(4, 4)) == 80
    with pytest.raises(management.OOM_EXCEPTION):
        raise torch.OutOfMemoryError
