"""Hold the built-in functions by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from comfyserverless.functions.control import ControlNetRun
from comfyserverless.functions.denoising import DenoiseStep
from comfyserverless.functions.image import ImageLoad, ImageSave, ImageScale
from comfyserverless.functions.latent import LatentEmpty, LatentLoad, LatentSave, LatentUpscale
from comfyserverless.functions.sample import SampleBegin, SampleEnd
from comfyserverless.functions.text import TextEncode
from comfyserverless.functions.vae import VaeDecode, VaeEncode
from comfyserverless.sdk.modelfn import ModelFn

FUNCTIONS: Mapping[str, ModelFn] = MappingProxyType(
    {
        function.name: function
        for function in (
            TextEncode(),
            SampleBegin(),
            DenoiseStep(),
            ControlNetRun(),
            SampleEnd(),
            VaeDecode(),
            VaeEncode(),
            LatentEmpty(),
            LatentUpscale(),
            LatentSave(),
            LatentLoad(),
            ImageLoad(),
            ImageSave(),
            ImageScale(),
        )
    }
)
