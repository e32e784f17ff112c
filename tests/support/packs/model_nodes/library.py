"""Use ComfyUI's nodes and objects as a library: a detailer, encoders, LoRAs, saving."""

from __future__ import annotations

from typing import Any, ClassVar

import comfy.sd
import comfy.utils
import folder_paths
import nodes
from comfy.cldm.control_types import UNION_CONTROLNET_TYPES


class Detailer:
    """Encode, sample, decode: what detailers do with a part of a picture."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("IMAGE", "LATENT")
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        kinds = {"model": "MODEL", "clip": "CLIP", "vae": "VAE", "image": "IMAGE"}
        return {
            "required": {name: (kind,) for name, kind in kinds.items()},
            "optional": {"lora": ("STRING", {"default": ""})},
        }

    def run(self, model: Any, clip: Any, vae: Any, image: Any, lora: str = "") -> Any:
        if lora:
            model, clip = nodes.LoraLoader().load_lora(model, clip, lora, 0.8, 0.6)
        positive = nodes.CLIPTextEncode().encode(clip, "a (red:1.3) house")[0]
        negative = nodes.NODE_CLASS_MAPPINGS["CLIPTextEncode"]().encode(clip=clip, text="")[0]
        latent = nodes.VAEEncode().encode(vae, image)[0]
        latent = nodes.KSampler().sample(
            model, 7, 2, 6.0, "euler", "normal", positive, negative, latent, denoise=0.5
        )[0]
        return vae.decode(latent["samples"]), latent


class TokenEncoder:
    """Encode tokens, as they are or with all weights doubled."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("CONDITIONING",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        factor = ("FLOAT", {"default": 1.0})
        return {"required": {"clip": ("CLIP",), "text": ("STRING", {"default": ""}), "factor": factor}}

    def run(self, clip: Any, text: str, factor: float) -> Any:
        tokens = clip.tokenize(text, return_word_ids=True)
        for kind, chunks in tokens.items():
            tokens[kind] = [
                [(token, weight * factor if word else weight, word) for token, weight, word in chunk]
                for chunk in chunks
            ]
        return (clip.encode_from_tokens_scheduled(tokens, add_dict={"note": "of a pack"}),)


class FileLoader:
    """Load a checkpoint and a LoRA by their paths, as loaders of packs do."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("MODEL", "CLIP", "VAE")
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        changed = ("BOOLEAN", {"default": False})
        return {"required": {"checkpoint": ("STRING", {}), "lora": ("STRING", {}), "changed": changed}}

    def run(self, checkpoint: str, lora: str, changed: bool) -> Any:
        path = folder_paths.get_full_path_or_raise("checkpoints", checkpoint)
        model, clip, vae = comfy.sd.load_checkpoint_guess_config(path, output_vae=True, output_clip=True)[:3]
        tensors = comfy.utils.load_torch_file(folder_paths.get_full_path("loras", lora), safe_load=True)
        if changed:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        model, clip = comfy.sd.load_lora_for_models(model, clip, tensors, 0.8, 0.6)
        return model, clip, vae


class UnionType:
    """Say what a ControlNet is used as: by its argument, or with the built-in node's class."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("CONTROL_NET",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"control_net": ("CONTROL_NET",), "type": ("STRING",), "way": ("STRING",)}}

    def run(self, control_net: Any, type: str, way: str) -> Any:
        if way == "node":
            return nodes.NODE_CLASS_MAPPINGS["SetUnionControlNetType"]().set_controlnet_type(control_net, type)
        made = control_net.copy()
        made.set_extra_arg("control_type", [UNION_CONTROLNET_TYPES[type]])
        return (made,)


class OwnSave(nodes.SaveImage):
    """Save as SaveImage does, into a folder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix_append = "_own"


class Describe:
    """Say what a pack can see of the objects."""

    OUTPUT_NODE = True
    RETURN_TYPES: ClassVar[tuple[str, ...]] = ()
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"model": ("MODEL",), "clip": ("CLIP",), "vae": ("VAE",)}}

    def run(self, model: Any, clip: Any, vae: Any) -> Any:
        import comfy.model_base

        told = [
            type(model).__name__,
            isinstance(model.model, comfy.model_base.BaseModel),
            isinstance(model.model, comfy.model_base.SDXL),
            model.get_model_object("latent_format").latent_channels,
            round(float(model.model.model_sampling.sigma_max), 3),
            sorted(clip.tokenize("a cat")),
            vae.spacial_compression_encode(),
            "KSampler" in nodes.NODE_CLASS_MAPPINGS and "ModelsPlain" in nodes.NODE_CLASS_MAPPINGS,
            nodes.NODE_CLASS_MAPPINGS["KSampler"].RETURN_TYPES,
            "sd15_tiny.safetensors"
            in nodes.NODE_CLASS_MAPPINGS["CheckpointLoaderSimple"].INPUT_TYPES()["required"]["ckpt_name"][0],
        ]
        return {"ui": {"text": [str(each) for each in told]}, "result": ()}


NODE_CLASS_MAPPINGS = {
    "ModelsDetailer": Detailer,
    "ModelsTokenEncoder": TokenEncoder,
    "ModelsFileLoader": FileLoader,
    "ModelsUnionType": UnionType,
    "ModelsOwnSave": OwnSave,
    "ModelsDescribe": Describe,
}
