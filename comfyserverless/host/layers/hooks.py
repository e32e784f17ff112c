"""Know the classes of `comfy.hooks`; groups without hooks work, hooks that change weights are refused."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

from comfyserverless.host.layers.refusing import refuse


class EnumHookMode(enum.Enum):
    """Whether hooks save time or memory."""

    MinVram = "minvram"
    MaxSpeed = "maxspeed"


class EnumHookType(enum.Enum):
    """What a hook changes."""

    Weight = "weight"
    ObjectPatch = "object_patch"
    AdditionalModels = "add_models"
    TransformerOptions = "transformer_options"
    Injections = "add_injections"


class EnumHookScope(enum.Enum):
    """Of whom a hook is."""

    AllConditioning = "all_conditioning"
    HookedOnly = "hooked_only"


class EnumWeightTarget(enum.Enum):
    """Whose weights a hook changes."""

    Model = "model"
    Clip = "clip"


class HookRef:
    """Tell hooks apart."""


class Hook:
    """The base of hooks; packs subclass it."""

    def __init__(
        self, hook_type: Any = None, hook_ref: Any = None, hook_id: Any = None, hook_keyframe: Any = None,
        hook_scope: Any = EnumHookScope.AllConditioning,
    ) -> None:  # fmt: skip
        self.hook_type, self.hook_id, self.hook_scope = hook_type, hook_id, hook_scope
        self.hook_ref = hook_ref if hook_ref is not None else HookRef()
        self.hook_keyframe = hook_keyframe if hook_keyframe is not None else HookKeyframeGroup()

    def clone(self) -> Hook:
        """Return a copy."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made


class WeightHook(Hook):
    """A hook that changes weights while sampling: refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse("comfy.hooks.WeightHook", "weights that change while sampling")


class HookKeyframe:
    """A strength from a share of the way on."""

    def __init__(self, strength: float, start_percent: float = 0.0, guarantee_steps: int = 1) -> None:
        self.strength, self.start_percent, self.guarantee_steps = strength, start_percent, guarantee_steps
        self.start_t = 999999999.9


class HookKeyframeGroup:
    """Keyframes in order."""

    def __init__(self) -> None:
        self.keyframes: list[HookKeyframe] = []

    def add(self, keyframe: HookKeyframe) -> None:
        """Add a keyframe, in the order of shares."""
        self.keyframes = sorted([*self.keyframes, keyframe], key=lambda each: each.start_percent)

    def is_empty(self) -> bool:
        """Tell whether there is none."""
        return not self.keyframes

    def clone(self) -> HookKeyframeGroup:
        """Return a copy."""
        made = HookKeyframeGroup()
        made.keyframes = list(self.keyframes)
        return made


class HookGroup:
    """Hooks that belong together."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    def __len__(self) -> int:
        return len(self.hooks)

    def add(self, hook: Hook) -> None:
        """Add a hook, unless it is there."""
        if hook not in self.hooks:
            self.hooks.append(hook)

    def contains(self, hook: Hook) -> bool:
        """Tell whether a hook is there."""
        return hook in self.hooks

    def clone(self) -> HookGroup:
        """Return a copy."""
        made = HookGroup()
        made.hooks = [hook.clone() for hook in self.hooks]
        return made

    def clone_and_combine(self, other: HookGroup | None) -> HookGroup:
        """Return a copy with the hooks of another group."""
        made = self.clone()
        for hook in [] if other is None else other.hooks:
            made.add(hook.clone())
        return made

    def set_keyframes_on_hooks(self, hook_kf: HookKeyframeGroup | None) -> None:
        """Give all hooks keyframes."""
        for hook in self.hooks:
            hook.hook_keyframe = HookKeyframeGroup() if hook_kf is None else hook_kf.clone()

    @staticmethod
    def combine_all_hooks(hooks_list: Iterable[HookGroup | None], require_count: int = 0) -> HookGroup | None:
        """Return one group of all; None if there are none."""
        given = [group for group in hooks_list if group is not None]
        if not given:
            return None
        combined = given[0].clone()
        for group in given[1:]:
            combined = combined.clone_and_combine(group)
        return combined


def set_hooks_for_conditioning(
    cond: Sequence[Any], hooks: HookGroup | None, append_hooks: bool = True, cache: Any = None
) -> Any:
    """Return a conditioning with hooks; one without any stays as it is. Raises NotSupportedError for others."""
    if hooks is None or not len(hooks):
        return cond
    return refuse("hooks of conditionings", "weights that change while sampling")


def set_conds_props(
    conds: Sequence[Any], strength: float, set_cond_area: str, mask: Any = None, hooks: HookGroup | None = None,
    timesteps_range: Any = None, append_hooks: bool = True,
) -> list[Any]:  # fmt: skip
    """Return conditionings with a strength, a mask and a range of steps."""
    changed = []
    for cond in conds:
        set_hooks_for_conditioning(cond, hooks, append_hooks)
        values: dict[str, Any] = {} if timesteps_range is None else _range(timesteps_range)
        if mask is not None:
            values |= {
                "mask": mask,
                "mask_strength": strength,
                "set_area_to_bounds": set_cond_area != "default",
            }
        changed.append([[tensor, {**options, **values}] for tensor, options in cond])
    return changed


def _range(shares: Any) -> dict[str, Any]:
    return {"start_percent": shares[0], "end_percent": shares[1]}
