"""ComfyUI's `comfy.model_management`."""

import torch

from comfyserverless.functions.limits.room import total_memory_bytes
from comfyserverless.host.bridge import InterruptProcessingException
from comfyserverless.host.devices.loading import (
    LoadedModel,
    cleanup_models,
    cleanup_models_gc,
    current_loaded_models,
    free_memory,
    interrupt_current_processing,
    load_model_gpu,
    load_models_gpu,
    loaded_models,
    processing_interrupted,
    throw_exception_if_processing_interrupted,
    unload_all_models,
)
from comfyserverless.host.devices.memory import (
    debug_memory_summary,
    extra_reserved_memory,
    get_free_memory,
    get_total_memory,
    maximum_vram_for_weights,
    minimum_inference_memory,
    module_size,
    soft_empty_cache,
)
from comfyserverless.host.devices.precision import (
    FLOAT8_TYPES,
    cast_to,
    cast_to_device,
    dtype_size,
    force_upcast_attention_dtype,
    get_supported_float8_types,
    pick_weight_dtype,
    should_use_bf16,
    should_use_fp16,
    supports_cast,
    supports_dtype,
    supports_fp8_compute,
    text_encoder_dtype,
    unet_dtype,
    unet_manual_cast,
    vae_dtype,
)
from comfyserverless.host.devices.states import (
    CPUState,
    VRAMState,
    cpu_mode,
    get_autocast_device,
    get_torch_device,
    get_torch_device_name,
    is_amd,
    is_device_cpu,
    is_device_cuda,
    is_device_mps,
    is_device_type,
    is_device_xpu,
    is_nvidia,
    is_wsl,
    never,
    nothing,
    offload_device,
    pytorch_attention_enabled,
    text_encoder_device,
    text_encoder_initial_device,
    unet_inital_load_device,
)
from comfyserverless.host.devices.states import cpu_state as _cpu_state
from comfyserverless.host.devices.states import vram_state as _vram_state
from comfyserverless.host.missing import missing_names

OOM_EXCEPTION = torch.OutOfMemoryError
XFORMERS_IS_AVAILABLE = False
cpu_state = _cpu_state()
vram_state = set_vram_to = _vram_state()
lowvram_available = True
total_ram = total_memory_bytes() / (1 << 20)
total_vram = get_total_memory(get_torch_device()) / (1 << 20)

unet_offload_device = text_encoder_offload_device = vae_offload_device = offload_device
vae_device = get_torch_device
intermediate_device = offload_device
sync_stream = synchronize = get_offload_stream = nothing
pytorch_attention_enabled_vae = pytorch_attention_enabled
NUM_STREAMS = 0

xformers_enabled = xformers_enabled_vae = sage_attention_enabled = flash_attention_enabled = never
pytorch_attention_flash_attention = force_channels_last = device_should_use_non_blocking = never
is_intel_xpu = is_directml_enabled = is_ascend_npu = is_mlu = mps_mode = never
device_supports_non_blocking = is_device_cuda

__all__ = [
    "FLOAT8_TYPES",
    "OOM_EXCEPTION",
    "XFORMERS_IS_AVAILABLE",
    "CPUState",
    "InterruptProcessingException",
    "LoadedModel",
    "VRAMState",
    "cast_to",
    "cast_to_device",
    "cleanup_models",
    "cleanup_models_gc",
    "cpu_mode",
    "current_loaded_models",
    "debug_memory_summary",
    "dtype_size",
    "extra_reserved_memory",
    "force_upcast_attention_dtype",
    "free_memory",
    "get_autocast_device",
    "get_free_memory",
    "get_supported_float8_types",
    "get_torch_device",
    "get_torch_device_name",
    "get_total_memory",
    "interrupt_current_processing",
    "is_amd",
    "is_device_cpu",
    "is_device_cuda",
    "is_device_mps",
    "is_device_type",
    "is_device_xpu",
    "is_nvidia",
    "is_wsl",
    "load_model_gpu",
    "load_models_gpu",
    "loaded_models",
    "maximum_vram_for_weights",
    "minimum_inference_memory",
    "module_size",
    "never",
    "offload_device",
    "pick_weight_dtype",
    "processing_interrupted",
    "pytorch_attention_enabled",
    "should_use_bf16",
    "should_use_fp16",
    "soft_empty_cache",
    "supports_cast",
    "supports_dtype",
    "supports_fp8_compute",
    "text_encoder_device",
    "text_encoder_dtype",
    "text_encoder_initial_device",
    "throw_exception_if_processing_interrupted",
    "unet_dtype",
    "unet_inital_load_device",
    "unet_manual_cast",
    "unload_all_models",
    "vae_dtype",
]
__getattr__ = missing_names(__name__)
