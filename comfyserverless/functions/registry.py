"""Hold the built-in functions by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from comfyserverless.functions.batches import joining
from comfyserverless.functions.batches.mosaics import ImageMergeTiles
from comfyserverless.functions.canvas import ImageCrop, ImageEmpty, ImageInvert, ImagePad
from comfyserverless.functions.conditionings.changing import CondAverage, CondConcat, CondZero
from comfyserverless.functions.control import ControlNetRun
from comfyserverless.functions.denoising import DenoiseNegative, DenoiseStep, DenoiseWeigh
from comfyserverless.functions.edges import ImageCanny
from comfyserverless.functions.hosted.evaluating import DenoiseEvaluate
from comfyserverless.functions.hosted.tokens import TextEncodeTokens
from comfyserverless.functions.image import ImageLoad, ImageLoadMask, ImageSave, ImageScale
from comfyserverless.functions.images.animations import ImageSaveApng, ImageSaveDeep, ImageSaveWebp
from comfyserverless.functions.images.colors import ImageColorMask, ImageFromYuv, ImageToYuv
from comfyserverless.functions.images.combining import (
    ImageBatch,
    ImageBlend,
    ImageComposite,
    ImageJoinAlpha,
    ImageSplitAlpha,
    ImageStitch,
)
from comfyserverless.functions.images.encoding import ImageEncode
from comfyserverless.functions.images.erasing import ImageErase
from comfyserverless.functions.images.filters import (
    ImageBlur,
    ImageMorphology,
    ImageNoise,
    ImageQuantize,
    ImageSharpen,
)
from comfyserverless.functions.images.geometry import (
    ImageFlip,
    ImageFrame,
    ImageRepeat,
    ImageRotate,
    ImageSlice,
)
from comfyserverless.functions.images.porter_duff import ImagePorterDuff
from comfyserverless.functions.latent import (
    LatentComposite,
    LatentEmpty,
    LatentLoad,
    LatentRepeat,
    LatentSave,
    LatentSlice,
    LatentUpscale,
)
from comfyserverless.functions.latents.changing import (
    LatentBatch,
    LatentBlend,
    LatentConcat,
    LatentCrop,
    LatentCut,
    LatentCutToBatch,
    LatentFlip,
    LatentInterpolate,
    LatentPaste,
    LatentRotate,
    LatentScale,
    LatentSum,
)
from comfyserverless.functions.levels.making import (
    LatentNoise,
    SigmasAtPercent,
    SigmasBeta,
    SigmasSchedule,
    SigmasSet,
    SigmasShape,
    SigmasSplit,
    SigmasTurbo,
)
from comfyserverless.functions.mask import (
    ImageToMask,
    MaskComposite,
    MaskCrop,
    MaskFeather,
    MaskGrow,
    MaskInvert,
    MaskSolid,
    MaskThreshold,
    MaskToImage,
)
from comfyserverless.functions.patching.builtin.operations import LatentOperate
from comfyserverless.functions.sample import SampleBegin, SampleEnd
from comfyserverless.functions.saving.encoders import ClipKinds, ClipSave
from comfyserverless.functions.saving.loras import LoraSave
from comfyserverless.functions.saving.models import CheckpointSave, ModelSave, VaeSave
from comfyserverless.functions.text import TextEncode
from comfyserverless.functions.texts.patterns import TextExtract, TextMatch, TextSubstitute
from comfyserverless.functions.texts.saving import TextSave
from comfyserverless.functions.texts.showing import TextShow
from comfyserverless.functions.tiles.blending import TilesBlend, TilesMean
from comfyserverless.functions.tiles.planning import ImagePlanUpscale, VaePlanTiles
from comfyserverless.functions.tiles.running import ImageUpscaleTiles, VaeDecodeTiles, VaeEncodeTiles
from comfyserverless.functions.vae import VaeDecode, VaeEncode, VaeEncodeInpaint
from comfyserverless.sdk.modelfn import ModelFn

FUNCTIONS: Mapping[str, ModelFn] = MappingProxyType(
    {
        function.name: function
        for function in (
            TextEncode(),
            TextEncodeTokens(),
            SampleBegin(),
            DenoiseStep(),
            DenoiseNegative(),
            DenoiseWeigh(),
            DenoiseEvaluate(),
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
            MaskCrop(),
            MaskThreshold(),
            SigmasSchedule(),
            SigmasBeta(),
            SigmasTurbo(),
            SigmasAtPercent(),
            SigmasShape(),
            SigmasSplit(),
            SigmasSet(),
            LatentOperate(),
            LatentNoise(),
            CondAverage(),
            CondConcat(),
            CondZero(),
            ImageBatch(),
            ImageBlend(),
            ImageComposite(),
            ImagePorterDuff(),
            ImageSplitAlpha(),
            ImageJoinAlpha(),
            ImageStitch(),
            ImageBlur(),
            ImageSharpen(),
            ImageNoise(),
            ImageQuantize(),
            ImageMorphology(),
            ImageFlip(),
            ImageRotate(),
            ImageRepeat(),
            ImageSlice(),
            ImageFrame(),
            ImageColorMask(),
            ImageToYuv(),
            ImageFromYuv(),
            LatentBlend(),
            LatentInterpolate(),
            LatentSum(),
            LatentScale(),
            LatentPaste(),
            LatentFlip(),
            LatentRotate(),
            LatentCrop(),
            LatentBatch(),
            LatentConcat(),
            LatentCut(),
            LatentCutToBatch(),
            TextMatch(),
            TextExtract(),
            TextSubstitute(),
            TextShow(),
            TextSave(),
            ModelSave(),
            CheckpointSave(),
            ClipKinds(),
            ClipSave(),
            LoraSave(),
            VaeSave(),
            ImageSaveWebp(),
            ImageSaveApng(),
            ImageSaveDeep(),
            ImageEncode(),
            ImageMergeTiles(),
            *(make() for make in joining.FUNCTIONS),
            ImageErase(),
            VaePlanTiles(),
            VaeDecodeTiles(),
            VaeEncodeTiles(),
            ImagePlanUpscale(),
            ImageUpscaleTiles(),
            TilesBlend(),
            TilesMean(),
        )
    }
)
