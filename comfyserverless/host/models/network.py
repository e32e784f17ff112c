"""Stand for the loaded model behind a MODEL (`comfy.model_base`): facts of the file, evaluations on the
workers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.values import FileRef, ModelRef
from comfyserverless.host.layers.latents import LatentFormat, format_of
from comfyserverless.host.layers.refusing import missing_class, refuse
from comfyserverless.host.models.facts import model_facts
from comfyserverless.host.sampling.spaces import ContinuousEdm, ContinuousV, DiscreteEps, DiscreteV
from comfyserverless.models.families.base import ModelFacts

_BYTES_PER_CELL = 2 * 1024 * 1024 // 64


class ModelType(enum.Enum):
    """What a network predicts, and of which process."""

    EPS = 1
    V_PREDICTION = 2
    V_PREDICTION_EDM = 3
    STABLE_CASCADE = 4
    EDM = 5
    FLOW = 6
    V_PREDICTION_CONTINUOUS = 7
    FLUX = 8
    IMG_TO_IMG = 9
    FLOW_COSMOS = 10
    IMG_TO_IMG_FLOW = 11


class ModelConfig:
    """What `comfy.supported_models` says of a family: the network's and the sampling's settings."""

    memory_usage_factor = 1.0
    unet_extra_config: dict[str, Any] = {}  # noqa: RUF012  packs read it from the class
    manual_cast_dtype = None
    custom_operations = None
    scaled_fp8 = None
    optimizations: dict[str, Any] = {"fp8": False}  # noqa: RUF012

    def __init__(self, facts: ModelFacts) -> None:
        self.unet_config: dict[str, Any] = {
            "in_channels": facts.in_channels,
            "out_channels": facts.latent_channels,
            "context_dim": facts.context_width,
            "adm_in_channels": facts.adm_width,
            "disable_unet_model_creation": False,
        }
        self.sampling_settings = _sampling_settings(facts)
        self.latent_format = latent_format_of(facts)
        self.family = facts.family

    def process_latent_in(self, latent: Tensor) -> Tensor:
        """Return a latent in the network's units."""
        return self.latent_format.process_in(latent)


def latent_format_of(facts: ModelFacts) -> LatentFormat:
    """Return the latent format of a model."""
    return format_of(facts.family, facts.scale_factor, facts.shift_factor, facts.latent_channels)


class RemoteNetwork:
    """Stand where a network would be (`model.diffusion_model`); its layers are on the workers."""

    def __init__(self, file: FileRef) -> None:
        self.file = file
        self.dtype = torch.float32

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Read the weights of the file."""
        from comfyserverless.host.models.weights import network_weights

        return network_weights(self.file, "")

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """Read the weights of the file, with their names."""
        return iter(self.state_dict().items())

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Read the weights of the file: what packs count, or ask for a type or a device."""
        return iter(self.state_dict().values())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"comfyserverless has no diffusion_model.{name} here: the network's layers are on the workers",
            name=name,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse."""
        refuse("diffusion_model(...)", "call model.apply_model, which evaluates it on a worker")


class BaseModel:
    """A diffusion model of a file, as packs see it under `ModelPatcher.model`."""

    def __init__(self, file: FileRef) -> None:
        self.file = file
        self.facts = model_facts(ModelRef(file))
        self.model_config = ModelConfig(self.facts)
        self.latent_format = self.model_config.latent_format
        self.model_type = _type_of(self.facts)
        self.model_sampling: Any = _SAMPLINGS[self.model_type](self.model_config)
        self.diffusion_model: Any = RemoteNetwork(file)
        self.adm_channels = self.facts.adm_width or 0
        self.concat_keys: tuple[str, ...] = ("mask", "masked_image") if self.facts.is_inpainting else ()
        self.device = torch.device("cpu")
        self.manual_cast_dtype = None
        self.memory_usage_factor = 1.0
        self.current_patcher: Any = None

    def process_latent_in(self, latent: Tensor) -> Tensor:
        """Return a latent in the network's units."""
        return self.latent_format.process_in(latent)

    def process_latent_out(self, latent: Tensor) -> Tensor:
        """Return a latent of the network in a graph's units."""
        return self.latent_format.process_out(latent)

    def get_dtype(self) -> torch.dtype:
        """Return the type of latents."""
        return torch.float32

    get_dtype_inference = get_dtype

    def is_adm(self) -> bool:
        """Tell whether the network takes a vector condition."""
        return self.adm_channels > 0

    def memory_required(self, input_shape: Any, cond_shapes: Any = None) -> float:
        """Estimate the bytes of one evaluation."""
        cells = input_shape[0] * input_shape[-1] * input_shape[-2]
        return float(cells * _BYTES_PER_CELL)

    def apply_model(
        self, x: Tensor, t: Tensor, c_concat: Any = None, c_crossattn: Any = None, **more: Any
    ) -> Tensor:
        """Evaluate the network on a worker: latent [B, C, h, w] at levels t [B], hidden states -> estimate."""
        from comfyserverless.host.sampling.evaluating import apply_model

        return apply_model(self, x, t, c_crossattn, more)

    def to(self, *args: Any, **kwargs: Any) -> BaseModel:
        """Return the model itself: it stays where it is."""
        return self

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Read the weights of the file."""
        parameters: Iterator[Tensor] = self.diffusion_model.parameters()
        return parameters

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Read all weights of the file."""
        from comfyserverless.host.models.weights import network_weights

        return network_weights(self.file, "diffusion_model.")


_NAMES = [
    "SD21UNCLIP",
    "SDXLRefiner",
    "SDXL",
    "SVD_img2vid",
    "SV3D_u",
    "SV3D_p",
    "Stable_Zero123",
    "SD_X4Upscaler",
    "IP2P",
    "SD15_instructpix2pix",
    "SDXL_instructpix2pix",
    "LotusD",
    "StableCascade_C",
    "StableCascade_B",
    "SD3",
    "AuraFlow",
    "StableAudio1",
    "HunyuanDiT",
    "PixArt",
    "Flux",
    "Flux2",
    "GenmoMochi",
    "LTXV",
    "LTXAV",
    "HunyuanVideo",
    "HunyuanVideoI2V",
    "HunyuanVideoSkyreelsI2V",
    "HunyuanVideo15",
    "CosmosVideo",
    "CosmosPredict2",
    "Lumina2",
    "ZImage",
    "WAN21",
    "WAN21_Vace",
    "WAN21_Camera",
    "WAN21_HuMo",
    "WAN21_FlowRVS",
    "WAN21_SCAIL",
    "WAN22",
    "WAN22_S2V",
    "WAN22_Animate",
    "WAN22_WanDancer",
    "Hunyuan3Dv2",
    "Hunyuan3Dv2_1",
    "HiDream",
    "Chroma",
    "ChromaRadiance",
    "ACEStep",
    "ACEStep15",
    "Omnigen2",
    "QwenImage",
    "HunyuanImage21",
    "HunyuanImage21Refiner",
    "Kandinsky5",
    "Kandinsky5Image",
    "Anima",
]

MODELS: dict[str, type] = {
    "BaseModel": BaseModel,
    **{name: missing_class(f"comfy.model_base.{name}", BaseModel) for name in _NAMES},
    "SDXL": type("SDXL", (BaseModel,), {"__doc__": "Stable Diffusion XL."}),
    "SDXLRefiner": type("SDXLRefiner", (BaseModel,), {"__doc__": "The refiner of Stable Diffusion XL."}),
}
"""The classes of `comfy.model_base` by name; packs check isinstance."""


_CLASSES = {"sdxl": "SDXL", "sdxl_refiner": "SDXLRefiner"}
"""The names of the classes of families that have one of their own."""


@lru_cache(64)
def base_model(file: FileRef) -> BaseModel:
    """Return the model of a file, the same object for all handles of it. Raises ModelFileError."""
    made: BaseModel = MODELS[_CLASSES.get(model_facts(ModelRef(file)).family, "BaseModel")](file)
    return made


_SAMPLINGS: Mapping[ModelType, Callable[[ModelConfig], torch.nn.Module]] = {
    ModelType.EPS: DiscreteEps,
    ModelType.V_PREDICTION: DiscreteV,
    ModelType.V_PREDICTION_EDM: ContinuousV,
    ModelType.EDM: ContinuousEdm,
}


def _type_of(facts: ModelFacts) -> ModelType:
    levels = _sampling_settings(facts)
    if "sigma_data" in levels:
        return ModelType.EDM
    if "sigma_max" in levels:
        return ModelType.V_PREDICTION_EDM
    return ModelType.EPS if facts.prediction == "epsilon" else ModelType.V_PREDICTION


def _sampling_settings(facts: ModelFacts) -> dict[str, Any]:
    """Return what ComfyUI's families set if a file says that it has another noise process."""
    said = {} if facts.process is None else dict(facts.process.arguments)
    sampling = said.pop("sampling", None)
    return {**said, "sigma_data": 0.5} if sampling == "edm_playground_v2.5" else said
