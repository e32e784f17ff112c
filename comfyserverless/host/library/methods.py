"""Name the methods of ComfyUI's classes, which packs call by name and by position.

Classes that are not listed have `execute` alone, with their inputs in declared order. Newer versions of ComfyUI
call every class's method `execute`, so that each class has it, too.
"""

from __future__ import annotations

_TABLE = """
KSampler sample model seed steps cfg sampler_name scheduler positive negative latent_image denoise
KSamplerAdvanced sample model add_noise noise_seed steps cfg sampler_name scheduler positive negative \
 latent_image start_at_step end_at_step return_with_leftover_noise
CheckpointLoaderSimple load_checkpoint
CheckpointLoader load_checkpoint config_name ckpt_name
DiffusersLoader load_checkpoint
unCLIPCheckpointLoader load_checkpoint
UNETLoader load_unet unet_name weight_dtype
VAELoader load_vae
CLIPLoader load_clip clip_name type device
DualCLIPLoader load_clip clip_name1 clip_name2 type device
TripleCLIPLoader load_clip
LoraLoader load_lora model clip lora_name strength_model strength_clip
LoraLoaderModelOnly load_lora_model_only model lora_name strength_model
ControlNetLoader load_controlnet
DiffControlNetLoader load_controlnet
ControlNetApply apply_controlnet conditioning control_net image strength
ControlNetApplyAdvanced apply_controlnet positive negative control_net image strength \
 start_percent end_percent vae
SetUnionControlNetType set_controlnet_type control_net type
CLIPTextEncode encode clip text
CLIPTextEncodeSDXL encode clip width height crop_w crop_h target_width target_height text_g text_l
CLIPTextEncodeSDXLRefiner encode clip ascore width height text
CLIPSetLastLayer set_last_layer clip stop_at_clip_layer
CLIPVisionLoader load_clip
CLIPVisionEncode encode clip_vision image crop
StyleModelLoader load_style_model
StyleModelApply apply_stylemodel
unCLIPConditioning apply_adm
GLIGENLoader load_gligen
GLIGENTextBoxApply append
ConditioningCombine combine conditioning_1 conditioning_2
ConditioningAverage addWeighted conditioning_to conditioning_from conditioning_to_strength
ConditioningConcat concat conditioning_to conditioning_from
ConditioningSetArea append conditioning width height x y strength
ConditioningSetAreaPercentage append conditioning width height x y strength
ConditioningSetAreaStrength append conditioning strength
ConditioningSetMask append conditioning mask set_cond_area strength
ConditioningZeroOut zero_out
ConditioningSetTimestepRange set_range conditioning start end
VAEDecode decode vae samples
VAEDecodeTiled decode vae samples tile_size overlap temporal_size temporal_overlap
VAEEncode encode vae pixels
VAEEncodeTiled encode vae pixels tile_size overlap temporal_size temporal_overlap
VAEEncodeForInpaint encode vae pixels mask grow_mask_by
InpaintModelConditioning encode positive negative pixels vae mask noise_mask
EmptyLatentImage generate width height batch_size
LatentUpscale upscale samples upscale_method width height crop
LatentUpscaleBy upscale samples upscale_method scale_by
SaveLatent save samples filename_prefix
LoadLatent load
LatentComposite composite samples_to samples_from x y feather
LatentBlend blend samples1 samples2 blend_factor
LatentRotate rotate samples rotation
LatentFlip flip samples flip_method
LatentCrop crop samples width height x y
RepeatLatentBatch repeat samples amount
LatentFromBatch frombatch samples batch_index length
SetLatentNoiseMask set_mask samples mask
LoadImage load_image
LoadImageMask load_image image channel
LoadImageOutput load_image
ImageScale upscale image upscale_method width height crop
ImageScaleBy upscale image upscale_method scale_by
ImageInvert invert
ImageBatch batch image1 image2
EmptyImage generate width height batch_size color
ImagePadForOutpaint expand_image image left top right bottom feathering
UpscaleModelLoader load_model
ImageUpscaleWithModel upscale upscale_model image
ImageCompositeMasked composite destination source x y resize_source mask
LatentCompositeMasked composite destination source x y resize_source mask
MaskToImage mask_to_image
ImageToMask image_to_mask image channel
ImageColorToMask image_to_mask image color
SolidMask solid value width height
InvertMask invert
CropMask crop mask x y width height
MaskComposite combine destination source x y operation
FeatherMask feather mask left top right bottom
GrowMask expand_mask mask expand tapered_corners
ThresholdMask image_to_mask mask value
Canny detect_edge image low_threshold high_threshold
ImageBlend blend_images image1 image2 blend_factor blend_mode
ImageBlur blur image blur_radius sigma
ImageQuantize quantize image colors dither
ImageSharpen sharpen image sharpen_radius sigma alpha
ImageScaleToTotalPixels upscale image upscale_method megapixels
PorterDuffImageComposite composite source source_alpha destination destination_alpha mode
SplitImageWithAlpha split_image_with_alpha
JoinImageWithAlpha join_image_with_alpha image alpha
ImageCrop crop image width height x y
RepeatImageBatch repeat image amount
ImageFromBatch frombatch image batch_index length
LatentAdd op
LatentSubtract op
LatentMultiply op
LatentInterpolate op
LatentBatch batch samples1 samples2
LatentBatchSeedBehavior op
BasicScheduler get_sigmas model scheduler steps denoise
KarrasScheduler get_sigmas
ExponentialScheduler get_sigmas
PolyexponentialScheduler get_sigmas
LaplaceScheduler get_sigmas
SDTurboScheduler get_sigmas
BetaSamplingScheduler get_sigmas
VPScheduler get_sigmas
AlignYourStepsScheduler get_sigmas
SplitSigmas get_sigmas
SplitSigmasDenoise get_sigmas
FlipSigmas get_sigmas
KSamplerSelect get_sampler
SamplerEulerAncestral get_sampler
SamplerEulerAncestralCFGPP get_sampler
SamplerLMS get_sampler
SamplerDPMPP_3M_SDE get_sampler
SamplerDPMPP_2M_SDE get_sampler
SamplerDPMPP_SDE get_sampler
SamplerDPMPP_2S_Ancestral get_sampler
SamplerDPMAdaptative get_sampler
RandomNoise get_noise
DisableNoise get_noise
BasicGuider get_guider model conditioning
CFGGuider get_guider model positive negative cfg
DualCFGGuider get_guider model cond1 cond2 negative cfg_conds cfg_cond2_negative
SamplerCustom sample model add_noise noise_seed cfg positive negative sampler sigmas latent_image
SamplerCustomAdvanced sample noise guider sampler sigmas latent_image
AddNoise add_noise model noise sigmas latent_image
ModelMergeSimple merge model1 model2 ratio
ModelMergeSubtract merge model1 model2 multiplier
ModelMergeAdd merge model1 model2
ModelMergeBlocks merge
CLIPMergeSimple merge clip1 clip2 ratio
CLIPMergeSubtract merge clip1 clip2 multiplier
CLIPMergeAdd merge clip1 clip2
DifferentialDiffusion apply
ModelSamplingDiscrete patch model sampling zsnr
ModelSamplingContinuousEDM patch model sampling sigma_max sigma_min
ModelSamplingContinuousV patch model sampling sigma_max sigma_min
ModelSamplingSD3 patch model shift
ModelSamplingFlux patch model max_shift base_shift width height
RescaleCFG patch model multiplier
FreeU patch model b1 b2 s1 s2
FreeU_V2 patch model b1 b2 s1 s2
PatchModelAddDownscale patch
PerturbedAttentionGuidance patch model scale
SelfAttentionGuidance patch model scale blur_sigma
HyperTile patch
TomePatchModel patch model ratio
SaveImage save_images images filename_prefix prompt extra_pnginfo
PreviewImage save_images images filename_prefix prompt extra_pnginfo
"""

METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (method, tuple(order))
    for name, method, *order in (line.split() for line in _TABLE.strip().splitlines())
}
"""Class name -> (method's name, its parameters in order; none: as declared)."""

EXECUTE = "execute"
"""The method of classes that are not listed."""
