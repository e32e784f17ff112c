"""Name the types of sockets, and the shapes of declarations that packs annotate theirs with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Literal, TypedDict

_ANY = "*"


class IO(str, Enum):  # noqa: UP042  (packs rely on what this kind of enum prints)
    """Types of sockets. Unequal is only what cannot be linked: a part of a union equals it, and all `*`."""

    STRING = "STRING"
    IMAGE = "IMAGE"
    MASK = "MASK"
    LATENT = "LATENT"
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    FLOAT = "FLOAT"
    COMBO = "COMBO"
    CONDITIONING = "CONDITIONING"
    SAMPLER = "SAMPLER"
    SIGMAS = "SIGMAS"
    GUIDER = "GUIDER"
    NOISE = "NOISE"
    CLIP = "CLIP"
    CONTROL_NET = "CONTROL_NET"
    VAE = "VAE"
    MODEL = "MODEL"
    LORA_MODEL = "LORA_MODEL"
    LOSS_MAP = "LOSS_MAP"
    CLIP_VISION = "CLIP_VISION"
    CLIP_VISION_OUTPUT = "CLIP_VISION_OUTPUT"
    STYLE_MODEL = "STYLE_MODEL"
    GLIGEN = "GLIGEN"
    UPSCALE_MODEL = "UPSCALE_MODEL"
    LATENT_UPSCALE_MODEL = "LATENT_UPSCALE_MODEL"
    AUDIO = "AUDIO"
    WEBCAM = "WEBCAM"
    POINT = "POINT"
    FACE_ANALYSIS = "FACE_ANALYSIS"
    BBOX = "BBOX"
    SEGS = "SEGS"
    VIDEO = "VIDEO"
    ANY = _ANY
    NUMBER = "FLOAT,INT"
    PRIMITIVE = "STRING,FLOAT,INT,BOOLEAN"

    def __str__(self) -> str:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __ne__(self, other: object) -> bool:
        if not isinstance(other, str):
            return True
        names, others = set(self.value.split(",")), set(str(other).split(","))
        return not (_ANY in names | others or names <= others or others <= names)


class InputTypeOptions(TypedDict, total=False):
    """Options of an input."""

    default: Any
    defaultInput: bool
    forceInput: bool
    lazy: bool
    rawLink: bool
    tooltip: str
    min: float
    max: float
    step: float
    round: float
    display: str
    label_on: str
    label_off: str
    multiline: bool
    placeholder: str
    dynamicPrompts: bool
    options: list[Any]
    image_upload: bool
    image_folder: Literal["input", "output", "temp"]
    remote: dict[str, Any]
    control_after_generate: bool
    multi_select: dict[str, Any]


class HiddenInputTypeDict(TypedDict, total=False):
    """Hidden inputs: name of the argument -> what it gets."""

    node_id: Literal["UNIQUE_ID"]
    unique_id: Literal["UNIQUE_ID"]
    prompt: Literal["PROMPT"]
    extra_pnginfo: Literal["EXTRA_PNGINFO"]
    dynprompt: Literal["DYNPROMPT"]


class InputTypeDict(TypedDict, total=False):
    """What INPUT_TYPES returns: name -> (type, options)."""

    required: dict[str, Any]
    optional: dict[str, Any]
    hidden: HiddenInputTypeDict


class ComfyNodeABC(ABC):
    """What node classes may derive from, to have their declaration checked by type checkers."""

    DESCRIPTION: str
    CATEGORY: str
    EXPERIMENTAL: bool
    DEPRECATED: bool
    API_NODE: bool | None
    RETURN_TYPES: tuple[Any, ...]
    RETURN_NAMES: tuple[str, ...]
    OUTPUT_IS_LIST: tuple[bool, ...]
    OUTPUT_TOOLTIPS: tuple[str, ...]
    FUNCTION: str

    @classmethod
    @abstractmethod
    def INPUT_TYPES(cls) -> InputTypeDict:
        """Declare the inputs."""
        raise NotImplementedError


class CheckLazyMixin:
    """Ask for every lazy input that is not there yet."""

    def check_lazy_status(self, **kwargs: Any) -> list[str]:
        """Return the names of inputs that are needed."""
        return [name for name, value in kwargs.items() if value is None]


class FileLocator(TypedDict):
    """A file that a node shows: its name, and where it lies."""

    filename: str
    subfolder: str
    type: Literal["input", "output", "temp"]
