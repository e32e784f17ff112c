"""Change models by tensors and wrappers, and use what else a pack finds on them."""

from __future__ import annotations

from typing import Any, ClassVar

import comfy.lora
import comfy.patcher_extension
import comfy.utils
import folder_paths
import torch

from .sampling import Plain, Stepwise


class LoraByKeys:
    """Put a LoRA on by the keys of the model and of the text models, as loaders of packs do."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("MODEL", "CLIP")
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {"model": ("MODEL",), "clip": ("CLIP",), "lora": ("STRING", {}), "way": ("STRING", {})}
        }

    def run(self, model: Any, clip: Any, lora: str, way: str) -> Any:
        tensors = comfy.utils.load_torch_file(folder_paths.get_full_path("loras", lora), safe_load=True)
        keys = comfy.lora.model_lora_keys_unet(model.model, {})
        keys = comfy.lora.model_lora_keys_clip(clip.cond_stage_model, keys)
        loaded = comfy.lora.load_lora(tensors, keys)
        assert len(loaded) == len(tensors) // 3, (len(loaded), len(tensors))
        if way == "entries":
            loaded = dict(loaded)
        changed, changed_clip = model.clone(), clip.clone()
        accepted = changed.add_patches(loaded, 0.8)
        accepted_clip = changed_clip.add_patches(loaded, 0.6)
        assert set(accepted) | set(accepted_clip) == set(loaded)
        assert not set(accepted) & set(accepted_clip)
        return changed, changed_clip


class MergedByKeys:
    """Mix two models weight by weight, as merging packs do."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("MODEL",)
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"first": ("MODEL",), "second": ("MODEL",), "ratio": ("FLOAT", {})}}

    def run(self, first: Any, second: Any, ratio: float) -> Any:
        merged = first.clone()
        for key, value in second.get_key_patches("diffusion_model.").items():
            merged.add_patches({key: value}, 1.0 - ratio, ratio)
        return (merged,)


class Differences(Plain):
    """Add the difference to a weight that halves it."""

    def patched(self, model: Any) -> Any:
        changed = model.clone()
        key = "diffusion_model.out.2.weight"
        weight = changed.get_key_patches("diffusion_model.out.2")[key][0][0]
        assert changed.model_state_dict("diffusion_model.out.2.weight")[key].shape == weight.shape
        assert changed.add_patches({key: (weight,), "no.such.key": (weight,)}, -0.5) == [key]
        return changed


class Wrapped(Stepwise):
    """Sample inside of wrappers, all of which have to be called."""

    def run(self, model: Any, **given: Any) -> Any:
        kinds = comfy.patcher_extension.WrappersMP
        calls: list[str] = []

        def wrapper_of(kind: str) -> Any:
            def wrapper(executor: Any, *args: Any, **kwargs: Any) -> Any:
                calls.append(kind)
                return executor(*args, **kwargs)

            return wrapper

        changed = model.clone()
        for kind in (kinds.OUTER_SAMPLE, kinds.SAMPLER_SAMPLE, kinds.PREDICT_NOISE, kinds.CALC_COND_BATCH):
            changed.add_wrapper_with_key(kind, "test", wrapper_of(kind))
        result = Plain.run(self, changed, **given)
        steps = ["predict_noise", "calc_cond_batch"] * given["steps"]
        assert calls == ["outer_sample", "sampler_sample", *steps], calls
        return result[0], len(calls)


class Enlarged:
    """Use an upscaler as the network that it is, and a tiled decoder."""

    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("IMAGE", "IMAGE", "INT")
    FUNCTION = "run"
    CATEGORY = "models"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        kinds = {"upscaler": "UPSCALE_MODEL", "image": "IMAGE", "vae": "VAE", "latent": "LATENT"}
        return {"required": {name: (kind,) for name, kind in kinds.items()}}

    def run(self, upscaler: Any, image: Any, vae: Any, latent: Any) -> Any:
        larger = torch.clamp(upscaler(image.movedim(-1, -3)).movedim(-3, -1), 0.0, 1.0)
        decoded = vae.decode_tiled(latent["samples"], tile_x=8, tile_y=8, overlap=2)
        return larger, decoded, upscaler.scale


NODE_CLASS_MAPPINGS = {
    "ModelsLoraByKeys": LoraByKeys,
    "ModelsDifferences": Differences,
    "ModelsMergedByKeys": MergedByKeys,
    "ModelsWrapped": Wrapped,
    "ModelsEnlarged": Enlarged,
}
