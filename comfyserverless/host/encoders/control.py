"""Stand for a CONTROL_NET (`comfy.controlnet`): a file, a picture, a strength, and what was attached before
it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from comfyserverless.core.values import ControlNetRef
from comfyserverless.host.layers.refusing import refuse

_RANGE = (0.0, 1.0)
_TYPES = "control_type"
"""The argument with the numbers of a union ControlNet's types."""


class StrengthType(enum.Enum):
    """How a strength counts for the blocks."""

    CONSTANT = 1
    LINEAR_UP = 2


class ControlBase:
    """One link of a chain of controls; the last one attached holds those before it."""

    def __init__(self) -> None:
        self.cond_hint_original: Tensor | None = None
        self.cond_hint: Tensor | None = None
        self.strength = 1.0
        self.timestep_percent_range: tuple[float, float] = _RANGE
        self.timestep_range: Any = None
        self.previous_controlnet: ControlBase | None = None
        self.global_average_pooling = False
        self.latent_format: Any = None
        self.vae: Any = None
        self.compression_ratio = 8
        self.upscale_algorithm = "nearest-exact"
        self.extra_args: dict[str, Any] = {}
        self.extra_conds: list[str] = []
        self.extra_concat_orig: list[Any] = []
        self.extra_concat: Any = None
        self.strength_type: Any = None
        self.concat_mask = False
        self.multigpu_clones: dict[Any, Any] = {}
        self.preprocess_image = _as_is

    def set_cond_hint(
        self,
        cond_hint: Tensor,
        strength: float = 1.0,
        timestep_percent_range: Sequence[float] = _RANGE,
        vae: Any = None,
        extra_concat: Sequence[Any] = (),
    ) -> Self:
        """Take a picture [B, 3, H, W], and how much and when it acts; returns itself."""
        self.cond_hint_original, self.strength = cond_hint, strength
        self.timestep_percent_range = (float(timestep_percent_range[0]), float(timestep_percent_range[1]))
        self.vae, self.extra_concat_orig = vae, list(extra_concat)
        return self

    def set_previous_controlnet(self, controlnet: Any) -> Self:
        """Take what was attached before; returns itself."""
        self.previous_controlnet = controlnet
        return self

    def pre_run(self, model: Any, percent_to_timestep_function: Any) -> None:
        """Find the levels at which this acts."""
        start, end = (percent_to_timestep_function(share) for share in self.timestep_percent_range)
        self.timestep_range = (start, end)
        if self.previous_controlnet is not None:
            self.previous_controlnet.pre_run(model, percent_to_timestep_function)

    def cleanup(self) -> None:
        """Forget what belongs to one sampling."""
        if self.previous_controlnet is not None:
            self.previous_controlnet.cleanup()
        self.cond_hint = None
        self.timestep_range = None

    def get_models(self) -> list[Any]:
        """List models to load: none here."""
        return [] if self.previous_controlnet is None else self.previous_controlnet.get_models()

    def get_extra_hooks(self) -> list[Any]:
        """List hooks: none."""
        return []

    def get_instance_for_device(self, device: Any) -> Self:
        """Return itself."""
        return self

    def inference_memory_requirements(self, dtype: Any) -> int:
        """Return 0: this process runs none."""
        return 0

    def get_control(
        self, x_noisy: Tensor, t: Any, cond: Any, batched_number: int, transformer_options: Any
    ) -> Any:
        """Refuse: what a ControlNet adds is computed on the workers, where the model runs."""
        refuse("ControlNet.get_control", "ControlNets run on the workers, beside the model")

    def set_extra_arg(self, argument: str, value: Any = None) -> None:
        """Keep an argument of the network; the workers take notice of `control_type`."""
        self.extra_args[argument] = value

    def copy_to(self, other: ControlBase) -> None:
        """Give another one what this one has."""
        skipped = ("previous_controlnet", "cond_hint", "timestep_range")
        for name, value in vars(self).items():
            if name not in skipped:
                setattr(other, name, value)
        other.extra_args = dict(self.extra_args)

    def copy(self) -> Self:
        """Return a copy that nothing is attached before."""
        made = type(self).__new__(type(self))
        ControlBase.__init__(made)
        self.copy_to(made)
        return made


class ControlNet(ControlBase):
    """A ControlNet of a file."""

    def __init__(self, ref: ControlNetRef | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        if not isinstance(ref, ControlNetRef):
            refuse("comfy.controlnet.ControlNet(network)", "load_controlnet makes one of a file")
        self.ref = ref
        if ref.types:
            self.set_extra_arg(_TYPES, list(ref.types))
        self.control_model: Any = None
        self.load_device = torch.device("cpu")

    @classmethod
    def of(cls, ref: ControlNetRef) -> ControlNet:
        """Return the object for a handle."""
        return cls(ref)

    def to_ref(self) -> ControlNetRef:
        """Return the handle."""
        types = tuple(int(number) for number in self.extra_args.get(_TYPES) or ())
        return ControlNetRef(self.ref.file, types)


def chain_of(applications: Any) -> Any:
    """Return the last of a chain of controls, given the applications that our nodes keep in an entry."""
    last: ControlBase | None = None
    if not isinstance(applications, list):
        return applications
    for application in applications:
        control: ControlBase = application["control_net"].copy()
        share = (application["start_percent"], application["end_percent"])
        control.set_cond_hint(application["hint"].movedim(-1, 1), application["strength"], share)
        last = control.set_previous_controlnet(last)
    return last


def applications_of(control: ControlBase) -> list[dict[str, Any]] | None:
    """Return a chain as the applications that our nodes keep; None if a link is a pack's own control."""
    found: list[dict[str, Any]] = []
    link: ControlBase | None = control
    while link is not None:
        if not isinstance(link, ControlNet) or link.cond_hint_original is None:
            return None
        start, end = link.timestep_percent_range
        found.append(_application(link, start, end))
        link = link.previous_controlnet
    return found[::-1]


def _application(link: ControlNet, start: float, end: float) -> dict[str, Any]:
    assert link.cond_hint_original is not None, "the chain was checked"
    return {
        "control_net": link.to_ref(),
        "hint": link.cond_hint_original.movedim(1, -1).contiguous(),
        "strength": float(link.strength),
        "start_percent": start,
        "end_percent": end,
    }


def to_tree(control: ControlNet) -> Any:
    """Return the value of a ControlNet: a handle, or a chain if a picture was given to it."""
    return control.to_ref() if control.cond_hint_original is None else applications_of(control)


def _as_is(image: Tensor) -> Tensor:
    return image
