"""Hold the built-in functions by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from comfyserverless.functions.canvas import ImageCrop, ImageEmpty, ImageInvert, ImagePad
from comfyserverless.functions.control import ControlNetRun
from comfyserverless.functions.denoising import DenoiseNegative, DenoiseStep
from comfyserverless.functions.edges import ImageCanny
from comfyserverless.functions.image import ImageLoad, ImageLoadMask, ImageSave, ImageScale
from comfyserverless.functions.latent import (
    LatentComposite,
    LatentEmpty,
    LatentLoad,
    LatentRepeat,
    LatentSave,
    LatentSlice,
    LatentUpscale,
)
from comfyserverless.functions.mask import (
    ImageToMask,
    MaskComposite,
    MaskFeather,
    MaskGrow,
    MaskInvert,
    MaskSolid,
    MaskToImage,
)
from comfyserverless.functions.sample import SampleBegin, SampleEnd
from comfyserverless.functions.text import TextEncode
from comfyserverless.functions.vae import VaeDecode, VaeEncode, VaeEncodeInpaint
from comfyserverless.sdk.modelfn import ModelFn

FUNCTIONS: Mapping[str, ModelFn] = MappingProxyType(
    {
        function.name: function
        for function in (
            TextEncode(),
            SampleBegin(),
            DenoiseStep(),
            DenoiseNegative(),
            ControlNetRun(),
            SampleEnd(),
            VaeDecode(),
            VaeEncode(),
            VaeEncodeInpaint(),
            LatentEmpty(),
            LatentUpscale(),
            LatentComposite(),
            LatentRepeat(),
            LatentSlice(),
            LatentSave(),
            LatentLoad(),
            ImageLoad(),
            ImageLoadMask(),
            ImageSave(),
            ImageScale(),
            ImageEmpty(),
            ImageInvert(),
            ImageCrop(),
            ImagePad(),
            ImageCanny(),
            ImageToMask(),
            MaskSolid(),
            MaskInvert(),
            MaskToImage(),
            MaskGrow(),
            MaskFeather(),
            MaskComposite(),
        )
    }
)
