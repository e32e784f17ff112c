"""ComfyUI's `comfy.sd`."""

from comfyserverless.host.encoders.autoencoder import VAE
from comfyserverless.host.encoders.text import CLIP
from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.missing import unsupported
from comfyserverless.host.models.loading import (
    CLIPType,
    load_checkpoint,
    load_checkpoint_guess_config,
    load_clip,
    load_diffusion_model,
    load_diffusion_model_state_dict,
    load_lora_for_models,
    load_state_dict_guess_config,
    load_text_encoder_state_dicts,
    save_checkpoint,
)

load_gligen = unsupported("comfy.sd.load_gligen")
load_style_model = unsupported("comfy.sd.load_style_model")
load_unet = load_diffusion_model
load_unet_state_dict = load_diffusion_model_state_dict

__all__ = [
    "CLIP",
    "VAE",
    "CLIPType",
    "load_checkpoint",
    "load_checkpoint_guess_config",
    "load_clip",
    "load_diffusion_model",
    "load_diffusion_model_state_dict",
    "load_gligen",
    "load_lora_for_models",
    "load_state_dict_guess_config",
    "load_style_model",
    "load_text_encoder_state_dicts",
    "load_unet",
    "load_unet_state_dict",
    "save_checkpoint",
]
__getattr__ = refused(__name__)
