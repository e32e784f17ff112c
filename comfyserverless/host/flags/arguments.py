"""Offer every standard argument of ComfyUI's command line, with the values of this server.

What this server has no flag for is at its default: packs that read it then do what they do on a plain server.
"""

from __future__ import annotations

from argparse import Namespace
from enum import Enum
from typing import Any

from comfyserverless.host.settings import settings


class LatentPreviewMethod(Enum):
    """How pictures are made while sampling."""

    NoPreviews = "none"
    Auto = "auto"
    Latent2RGB = "latent2rgb"
    TAESD = "taesd"

    @classmethod
    def from_string(cls, value: str) -> LatentPreviewMethod | None:
        """Return the method of that name, None if there is none."""
        return next((method for method in cls if method.value == value), None)


class PerformanceFeature(Enum):
    """What `--fast` could switch on."""

    Fp16Accumulation = "fp16_accumulation"
    Fp8MatrixMultiplication = "fp8_matrix_mult"
    CublasOps = "cublas_ops"
    AutoTune = "autotune"


_SWITCHES = [
    "enable_compress_response_body",
    "auto_launch",
    "disable_auto_launch",
    "windows_standalone_build",
    "cpu",
    "cuda_malloc",
    "disable_cuda_malloc",
    "gpu_only",
    "highvram",
    "normalvram",
    "lowvram",
    "novram",
    "disable_smart_memory",
    "disable_async_offload",
    "disable_pinned_memory",
    "mmap_torch_files",
    "disable_mmap",
    "disable_dynamic_vram",
    "high_ram",
    "force_non_blocking",
    "force_fp32",
    "force_fp16",
    "fp64_unet",
    "fp32_unet",
    "bf16_unet",
    "fp16_unet",
    "fp8_e4m3fn_unet",
    "fp8_e5m2_unet",
    "fp8_e8m0fnu_unet",
    "fp16_vae",
    "fp32_vae",
    "bf16_vae",
    "cpu_vae",
    "fp8_e4m3fn_text_enc",
    "fp8_e5m2_text_enc",
    "fp16_text_enc",
    "fp32_text_enc",
    "bf16_text_enc",
    "force_channels_last",
    "supports_fp8_compute",
    "deterministic",
    "disable_ipex_optimize",
    "use_split_cross_attention",
    "use_quad_cross_attention",
    "use_pytorch_cross_attention",
    "use_sage_attention",
    "use_flash_attention",
    "disable_xformers",
    "force_upcast_attention",
    "dont_upcast_attention",
    "cache_classic",
    "cache_none",
    "disable_all_custom_nodes",
    "disable_api_nodes",
    "disable_partner_nodes",
    "offline",
    "enable_manager",
    "enable_manager_legacy_ui",
    "disable_manager_ui",
    "multi_user",
    "disable_metadata",
    "dont_print_server",
    "quick_test_for_ci",
    "log_stdout",
    "disable_assets",
    "enable_asset_hashing",
    "list_feature_flags",
]
_DEFAULTS: dict[str, Any] = {
    "listen": "127.0.0.1",
    "port": 8188,
    "tls_keyfile": None,
    "tls_certfile": None,
    "enable_cors_header": None,
    "max_upload_size": 100,
    "base_directory": None,
    "output_directory": None,
    "input_directory": None,
    "temp_directory": None,
    "user_directory": None,
    "models_directory": None,
    "extra_model_paths_config": None,
    "database_url": "",
    "front_end_version": "comfyanonymous/ComfyUI@latest",
    "front_end_root": None,
    "cuda_device": None,
    "default_device": None,
    "directml": None,
    "oneapi_device_selector": None,
    "reserve_vram": None,
    "async_offload": None,
    "preview_size": 512,
    "cache_lru": 0,
    "cache_ram": None,
    "whitelist_custom_nodes": [],
    "comfy_api_base": "https://api.comfy.org",
    "default_hashing_function": "sha256",
    "verbose": "INFO",
    "feature_flag": [],
}


def arguments() -> Namespace:
    """Return the arguments of this server: all standard names, those that it was started with on top."""
    values = dict.fromkeys(_SWITCHES, False) | {name: _copied(value) for name, value in _DEFAULTS.items()}
    values |= {"fast": set(), "listen": settings().address, "port": settings().port}
    values |= settings().flags
    method = LatentPreviewMethod.from_string(str(values.get("preview_method", "none")))
    values["preview_method"] = method or LatentPreviewMethod.NoPreviews
    return Namespace(**values)


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value
