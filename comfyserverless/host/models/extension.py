"""Keep wrappers, callbacks and injections as `comfy.patcher_extension` does: by type, then by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Store = dict[str, dict[str | None, list[Callable[..., Any]]]]


class CallbacksMP:
    """Names of the moments that callbacks are for."""

    ON_CLONE = "on_clone"
    ON_LOAD = "on_load_after"
    ON_DETACH = "on_detach_after"
    ON_CLEANUP = "on_cleanup"
    ON_PRE_RUN = "on_pre_run"
    ON_PREPARE_STATE = "on_prepare_state"
    ON_APPLY_HOOKS = "on_apply_hooks"
    ON_REGISTER_ALL_HOOK_PATCHES = "on_register_all_hook_patches"
    ON_INJECT_MODEL = "on_inject_model"
    ON_EJECT_MODEL = "on_eject_model"

    @classmethod
    def init_callbacks(cls) -> Store:
        """Return an empty store that knows all moments."""
        return {moment: {} for moment in _constants(cls)}


class WrappersMP:
    """Names of the calls that wrappers go around."""

    OUTER_SAMPLE = "outer_sample"
    PREPARE_SAMPLING = "prepare_sampling"
    SAMPLER_SAMPLE = "sampler_sample"
    PREDICT_NOISE = "predict_noise"
    CALC_COND_BATCH = "calc_cond_batch"
    APPLY_MODEL = "apply_model"
    DIFFUSION_MODEL = "diffusion_model"

    @classmethod
    def init_wrappers(cls) -> Store:
        """Return an empty store that knows all calls."""
        return {call: {} for call in _constants(cls)}


def _constants(cls: type) -> list[str]:
    return [value for name, value in vars(cls).items() if name.isupper()]


def _holder(name: str, options: dict[str, Any], is_model_options: bool) -> Store:
    if is_model_options:
        options = options.setdefault("transformer_options", {})
    store: Store = options.setdefault(name, {})
    return store


def _found(name: str, options: dict[str, Any], is_model_options: bool) -> Store:
    if is_model_options:
        options = options.get("transformer_options", {})
    return options.get(name) or {}


def add_wrapper(
    wrapper_type: str,
    wrapper: Callable[..., Any],
    transformer_options: dict[str, Any],
    is_model_options: bool = False,
) -> None:
    """Add a wrapper without a key."""
    add_wrapper_with_key(wrapper_type, None, wrapper, transformer_options, is_model_options)


def add_wrapper_with_key(
    wrapper_type: str,
    key: str | None,
    wrapper: Callable[..., Any],
    transformer_options: dict[str, Any],
    is_model_options: bool = False,
) -> None:
    """Add a wrapper to transformer_options, or to those of model_options."""
    store = _holder("wrappers", transformer_options, is_model_options)
    store.setdefault(wrapper_type, {}).setdefault(key, []).append(wrapper)


def get_wrappers_with_key(
    wrapper_type: str, key: str | None, transformer_options: dict[str, Any], is_model_options: bool = False
) -> list[Callable[..., Any]]:
    """List the wrappers of a key."""
    return list(_found("wrappers", transformer_options, is_model_options).get(wrapper_type, {}).get(key, ()))


def get_all_wrappers(
    wrapper_type: str, transformer_options: dict[str, Any], is_model_options: bool = False
) -> list[Callable[..., Any]]:
    """List all wrappers of a call, in the order in which their keys came."""
    by_key = _found("wrappers", transformer_options, is_model_options).get(wrapper_type, {})
    return [wrapper for wrappers in by_key.values() for wrapper in wrappers]


def add_callback(
    call_type: str,
    callback: Callable[..., Any],
    transformer_options: dict[str, Any],
    is_model_options: bool = False,
) -> None:
    """Add a callback without a key."""
    add_callback_with_key(call_type, None, callback, transformer_options, is_model_options)


def add_callback_with_key(
    call_type: str,
    key: str | None,
    callback: Callable[..., Any],
    transformer_options: dict[str, Any],
    is_model_options: bool = False,
) -> None:
    """Add a callback to transformer_options, or to those of model_options."""
    store = _holder("callbacks", transformer_options, is_model_options)
    store.setdefault(call_type, {}).setdefault(key, []).append(callback)


def get_callbacks_with_key(
    call_type: str, key: str | None, transformer_options: dict[str, Any], is_model_options: bool = False
) -> list[Callable[..., Any]]:
    """List the callbacks of a key."""
    return list(_found("callbacks", transformer_options, is_model_options).get(call_type, {}).get(key, ()))


def get_all_callbacks(
    call_type: str, transformer_options: dict[str, Any], is_model_options: bool = False
) -> list[Callable[..., Any]]:
    """List all callbacks of a moment."""
    by_key = _found("callbacks", transformer_options, is_model_options).get(call_type, {})
    return [callback for callbacks in by_key.values() for callback in callbacks]


class WrapperExecutor:
    """Call wrappers from the outside in, and what they wrap in the end.

    A wrapper gets the executor of what is inside as its first argument, and calls it.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        class_obj: object,
        wrappers: Sequence[Callable[..., Any]],
        idx: int,
    ) -> None:
        self.original = original
        self.class_obj = class_obj
        self.wrappers = list(wrappers)
        self.idx = idx
        self.is_last = idx == len(self.wrappers)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is inside."""
        inner = WrapperExecutor(self.original, self.class_obj, self.wrappers, self.idx + 1)
        return inner.execute(*args, **kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapper at hand, or the original where none is left."""
        if self.is_last:
            return self.original(*args, **kwargs)
        return self.wrappers[self.idx](self, *args, **kwargs)

    @classmethod
    def new_executor(
        cls, original: Callable[..., Any], wrappers: Sequence[Callable[..., Any]], idx: int = 0
    ) -> WrapperExecutor:
        """Wrap a function."""
        return cls(original, None, wrappers, idx)

    @classmethod
    def new_class_executor(
        cls,
        original: Callable[..., Any],
        class_obj: object,
        wrappers: Sequence[Callable[..., Any]],
        idx: int = 0,
    ) -> WrapperExecutor:
        """Wrap a method; class_obj: of whom."""
        return cls(original, class_obj, wrappers, idx)


class PatcherInjection:
    """What changes a model when it is loaded, and changes it back."""

    def __init__(self, inject: Callable[[Any], Any], eject: Callable[[Any], Any]) -> None:
        self.inject = inject
        self.eject = eject


def copy_nested_dicts(original: dict[Any, Any]) -> dict[Any, Any]:
    """Copy dicts and lists in dicts; what they hold is shared."""
    return {key: _copy(value) for key, value in original.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return copy_nested_dicts(value)
    return list(value) if isinstance(value, list) else value


def merge_nested_dicts(
    first: dict[Any, Any], second: dict[Any, Any], copy_dict1: bool = True
) -> dict[Any, Any]:
    """Put the second dict into the first: dicts are merged, lists joined, anything else replaced."""
    merged = copy_nested_dicts(first) if copy_dict1 else first
    for key, value in second.items():
        have = merged.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            merged[key] = merge_nested_dicts(have, value)
        elif isinstance(value, list) and isinstance(have, list):
            merged[key] = [*have, *value]
        else:
            merged[key] = _copy(value)
    return merged
