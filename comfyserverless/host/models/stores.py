"""Hold what packs hang onto a model: wrappers, callbacks, attachments, injections, further models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models.extension import Store, copy_nested_dicts


class Stores:
    """The methods of a model that keep things by key; a clone copies the dicts and lists."""

    def __init__(self) -> None:
        self.wrappers: Store = {}
        self.callbacks: Store = {}
        self.attachments: dict[str, Any] = {}
        self.injections: dict[str, list[Any]] = {}
        self.additional_models: dict[str, list[Any]] = {}
        self.backup: dict[str, Any] = {}
        self.object_patches_backup: dict[str, Any] = {}
        self.hook_patches: dict[Any, Any] = {}
        self.forced_hooks: Any = None
        self.current_hooks: Any = None
        self.is_injected = self.skip_injection = False

    def copy_stores(self, other: Stores) -> None:
        """Take over what another model has; attachments that know how (`on_model_patcher_clone`) are copied."""
        self.wrappers = copy_nested_dicts(other.wrappers)
        self.callbacks = copy_nested_dicts(other.callbacks)
        self.injections = copy_nested_dicts(other.injections)
        self.additional_models = {
            key: [model.clone() if hasattr(model, "clone") else model for model in models]
            for key, models in other.additional_models.items()
        }
        for key, attachment in other.attachments.items():
            clone = getattr(attachment, "on_model_patcher_clone", None)
            self.attachments[key] = attachment if clone is None else clone()

    def add_wrapper(self, wrapper_type: str, wrapper: Callable[..., Any]) -> None:
        """Add a wrapper without a key."""
        self.wrappers.setdefault(wrapper_type, {}).setdefault(None, []).append(wrapper)

    def add_wrapper_with_key(self, wrapper_type: str, key: str, wrapper: Callable[..., Any]) -> None:
        """Add a wrapper."""
        self.wrappers.setdefault(wrapper_type, {}).setdefault(key, []).append(wrapper)

    def remove_wrappers_with_key(self, wrapper_type: str, key: str) -> None:
        """Drop the wrappers of a key."""
        self.wrappers.get(wrapper_type, {}).pop(key, None)

    def get_wrappers(self, wrapper_type: str, key: str) -> list[Callable[..., Any]]:
        """List the wrappers of a key."""
        return list(self.wrappers.get(wrapper_type, {}).get(key, ()))

    def get_all_wrappers(self, wrapper_type: str) -> list[Callable[..., Any]]:
        """List all wrappers of a call."""
        return [each for wrappers in self.wrappers.get(wrapper_type, {}).values() for each in wrappers]

    def add_callback(self, call_type: str, callback: Callable[..., Any]) -> None:
        """Add a callback without a key."""
        self.callbacks.setdefault(call_type, {}).setdefault(None, []).append(callback)

    def add_callback_with_key(self, call_type: str, key: str, callback: Callable[..., Any]) -> None:
        """Add a callback."""
        self.callbacks.setdefault(call_type, {}).setdefault(key, []).append(callback)

    def remove_callbacks_with_key(self, call_type: str, key: str) -> None:
        """Drop the callbacks of a key."""
        self.callbacks.get(call_type, {}).pop(key, None)

    def get_callbacks(self, call_type: str, key: str) -> list[Callable[..., Any]]:
        """List the callbacks of a key."""
        return list(self.callbacks.get(call_type, {}).get(key, ()))

    def get_all_callbacks(self, call_type: str) -> list[Callable[..., Any]]:
        """List all callbacks of a moment."""
        return [each for callbacks in self.callbacks.get(call_type, {}).values() for each in callbacks]

    def set_attachments(self, key: str, attachment: Any) -> None:
        """Keep an object under a key."""
        self.attachments[key] = attachment

    def get_attachment(self, key: str) -> Any:
        """Return what is kept under a key, None if nothing is."""
        return self.attachments.get(key)

    def remove_attachments(self, key: str) -> None:
        """Forget what is kept under a key."""
        self.attachments.pop(key, None)

    def set_injections(self, key: str, injections: Sequence[Any]) -> None:
        """Keep injections under a key."""
        self.injections[key] = list(injections)

    def get_injections(self, key: str) -> list[Any] | None:
        """Return the injections of a key, None if there are none."""
        return self.injections.get(key)

    def remove_injections(self, key: str) -> None:
        """Forget the injections of a key."""
        self.injections.pop(key, None)

    def add_hook_patches(self, hook: Any, patches: Any, *strengths: float) -> None:
        """Refuse: weights do not change while sampling."""
        refuse("ModelPatcher.add_hook_patches", "weights that change while sampling")

    def register_all_hook_patches(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there are no hooks."""

    def apply_hooks(self, hooks: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return no options: there are no hooks."""
        return {}

    def clean_hooks(self) -> None:
        """Do nothing: there are no hooks."""

    def inject_model(self) -> None:
        """Do nothing: the network is on the workers."""

    def eject_model(self) -> None:
        """Do nothing: the network is on the workers."""

    def use_ejected(self, skip_and_inject_on_exit_only: bool = False) -> Self:
        """Return a context in which the model is as it was."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def set_additional_models(self, key: str, models: Sequence[Any]) -> None:
        """Keep models that are loaded with this one."""
        self.additional_models[key] = list(models)

    def get_additional_models_with_key(self, key: str) -> list[Any]:
        """Return the further models of a key."""
        return list(self.additional_models.get(key, ()))

    def get_additional_models(self) -> list[Any]:
        """Return all further models."""
        return [model for models in self.additional_models.values() for model in models]

    def remove_additional_models(self, key: str) -> None:
        """Forget the further models of a key."""
        self.additional_models.pop(key, None)

    def get_nested_additional_models(self) -> list[Any]:
        """Return all further models, and theirs."""
        found: list[Any] = []
        for model in self.get_additional_models():
            if model not in found:
                found.append(model)
                found += getattr(model, "get_nested_additional_models", list)()
        return found
