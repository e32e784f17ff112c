"""Bring models of packs to the device and back.

A patcher is whatever has `model`, `load_device`, `offload_device` and `patch_model`. Those of the server's own
models stand for weights on the workers, which load them when they are used; there is nothing to bring for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from comfyserverless.host.bridge import InterruptProcessingException, bridge
from comfyserverless.host.devices.memory import collect_garbage, get_free_memory, module_size, soft_empty_cache


class LoadedModel:
    """A patcher whose module is on its device; it is gone from here when its last user lets go of it."""

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)
        self.device = torch.device(model.load_device)
        self.currently_used = True

    @property
    def model(self) -> Any:
        """Return the patcher, None if nobody uses it any more."""
        return self._model()

    def model_memory(self) -> int:
        """Return the bytes of its weights."""
        return 0 if self.model is None else _size_bytes(self.model)

    def model_unload(self, *args: Any) -> bool:
        """Bring its weights back to where they wait."""
        if (patcher := self.model) is not None:
            _leave(patcher)
        return True


current_loaded_models: list[LoadedModel] = []


def _size_bytes(patcher: Any) -> int:
    size = getattr(patcher, "model_size", None)
    return int(size()) if callable(size) else module_size(patcher.model)


def _holds_weights(model: Any) -> bool:
    """Tell whether a patcher's weights are in this process."""
    inner = getattr(model, "model", None)
    return isinstance(inner, torch.nn.Module) and any(True for _ in inner.parameters())


def load_models_gpu(models: Iterable[Any], memory_required: int = 0, *more: Any, **named: Any) -> None:
    """Bring the weights of patchers to their devices; others leave if there is no room.

    memory_required: bytes that computing takes beside. Raises InterruptProcessingException if the prompt was
    stopped.
    """
    bridge().throw_if_interrupted()
    wanted = [model for model in models if _holds_weights(model)]
    _forget_gone()
    known = {id(loaded.model): loaded for loaded in current_loaded_models}
    for model in wanted:
        loaded = known.get(id(model))
        if loaded is None:
            room_bytes = memory_required + _size_bytes(model)
            free_memory(room_bytes, model.load_device, [known[id(m)] for m in wanted if id(m) in known])
            _enter(model)
            loaded = LoadedModel(model)
        else:
            current_loaded_models.remove(loaded)
        current_loaded_models.insert(0, loaded)  # the newest first: the oldest leave first


def load_model_gpu(model: Any) -> None:
    """Bring the weights of one patcher to its device."""
    load_models_gpu([model])


def _enter(patcher: Any) -> None:
    patch = getattr(patcher, "patch_model", None)
    if callable(patch):
        patch(device_to=patcher.load_device)
    else:
        patcher.model.to(patcher.load_device)


def _leave(patcher: Any) -> None:
    unpatch = getattr(patcher, "unpatch_model", None)
    if callable(unpatch):
        unpatch(patcher.offload_device)
    else:
        patcher.model.to(patcher.offload_device)


def _forget_gone() -> None:
    current_loaded_models[:] = [loaded for loaded in current_loaded_models if loaded.model is not None]


def free_memory(
    memory_required: float, device: Any, keep_loaded: Sequence[LoadedModel] = (), *more: Any, **named: Any
) -> list[LoadedModel]:
    """Bring models back, the longest unused first, until so many bytes are free; returns those that left."""
    device = torch.device(device)
    left: list[LoadedModel] = []
    if device.type == "cpu":
        return left  # where it would come back to is where it is
    for loaded in reversed(list(current_loaded_models)):
        if get_free_memory(device) >= memory_required:
            break
        if loaded.device == device and loaded not in keep_loaded:
            loaded.model_unload()
            current_loaded_models.remove(loaded)
            left.append(loaded)
    if left:
        soft_empty_cache()
    return left


def unload_all_models() -> None:
    """Bring all models of packs back to where they wait."""
    for loaded in current_loaded_models:
        loaded.model_unload()
    current_loaded_models.clear()
    soft_empty_cache()


def loaded_models(only_currently_used: bool = False) -> list[Any]:
    """Return the patchers whose weights are on their device."""
    return [loaded.model for loaded in current_loaded_models if loaded.model is not None]


def cleanup_models(*args: Any) -> None:
    """Forget models that nobody uses any more."""
    _forget_gone()


def cleanup_models_gc() -> None:
    """Forget models that nobody uses any more, and free their memory."""
    collect_garbage()
    _forget_gone()


def interrupt_current_processing(value: bool = True) -> None:
    """Stop the prompt of this call, or forget that this was wanted."""
    bridge().interrupt(value)


def processing_interrupted() -> bool:
    """Tell whether the prompt of this call was stopped."""
    try:
        bridge().throw_if_interrupted()
    except InterruptProcessingException:
        return True
    return False


def throw_exception_if_processing_interrupted() -> None:
    """Raise InterruptProcessingException if the prompt of this call was stopped."""
    bridge().throw_if_interrupted()
