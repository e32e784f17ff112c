"""Nodes that change what happens inside a U-Net, and its noise process."""

from __future__ import annotations

from comfyserverless.core.values import ModelRef
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.patching.handles import Arguments, patching, with_patch
from comfyserverless.nodes.specs import choice, combo, number, socket, switch, whole
from comfyserverless.nodes.taking import Inputs, take_model

_MODEL = socket("model", "MODEL")
_OUT = (OutputSpec("MODEL"),)
_SCALES = ("bicubic", "nearest-exact", "bilinear", "area", "bislerp")
_PARTS = ("q", "k", "v", "out")
_ADVANCED = "comfy_extras.nodes_model_advanced"
_EXPERIMENTS = {
    "category": "_for_testing/attention_experiments",
    "python_module": "comfy_extras.nodes_attention_multiply",
    "experimental": True,
}


def _factor(name: str) -> InputSpec:
    return number(name, 1.0, 0.0, 10.0, step=0.01)


def _free_u(name: str, patch: str, b1: float, b2: float) -> NodeDeclaration:
    defaults = {"b1": b1, "b2": b2, "s1": 0.9, "s2": 0.2}
    return NodeDeclaration(
        name=name,
        category="model_patches/unet",
        python_module="comfy_extras.nodes_freelunch",
        lower=patching(patch, " ".join(defaults)),
        inputs=(_MODEL, *(number(each, value, 0.0, 10.0, step=0.01) for each, value in defaults.items())),
        outputs=_OUT,
    )


def _multiply(name: str, attention: str) -> NodeDeclaration:
    def arguments(inputs: Inputs) -> Arguments:
        return {"attention": attention, **{part: inputs[part] for part in _PARTS}}

    return NodeDeclaration(
        name=name,
        lower=patching("multiply_attention", arguments),
        inputs=(_MODEL, *(_factor(part) for part in _PARTS)),
        outputs=_OUT,
        **_EXPERIMENTS,  # type: ignore[arg-type]
    )


async def _multiply_results(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Multiply what both attentions give; the models here have no attention over time."""
    model: ModelRef = take_model(inputs)
    for attention, name in (("attn1", "self_structural"), ("attn2", "cross_structural")):
        factors = {"q": 1.0, "k": 1.0, "v": 1.0, "out": inputs[name]}
        model = with_patch(model, "multiply_attention", {"attention": attention, **factors})
    return NodeResult((model,))


def _process(name: str, patch: str, settings: str, *inputs: InputSpec) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=name,
        category="advanced/model",
        python_module=_ADVANCED,
        lower=patching(patch, settings),
        inputs=(_MODEL, *inputs),
        outputs=_OUT,
    )


def _level(name: str, default: float) -> InputSpec:
    return number(name, default, 0.0, 1000.0, step=0.001, round=False)


NODES = (
    _free_u("FreeU", "freeu", 1.1, 1.2),
    _free_u("FreeU_V2", "freeu_v2", 1.3, 1.4),
    NodeDeclaration(
        name="PatchModelAddDownscale",
        display_name="PatchModelAddDownscale (Kohya Deep Shrink)",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_model_downscale",
        lower=patching(
            "downscale",
            "block_number downscale_factor start_percent end_percent downscale_after_skip downscale_method"
            " upscale_method",
        ),
        inputs=(
            _MODEL,
            whole("block_number", 3, 1, 32, step=1),
            number("downscale_factor", 2.0, 0.1, 9.0, step=0.001),
            number("start_percent", 0.0, 0.0, 1.0, step=0.001),
            number("end_percent", 0.35, 0.0, 1.0, step=0.001),
            switch("downscale_after_skip", True),
            choice("downscale_method", _SCALES),
            choice("upscale_method", _SCALES),
        ),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="HyperTile",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_hypertile",
        lower=patching("hypertile", "tile_size swap_size max_depth scale_depth"),
        inputs=(
            _MODEL,
            whole("tile_size", 256, 1, 2048),
            whole("swap_size", 2, 1, 128),
            whole("max_depth", 0, 0, 10),
            switch("scale_depth", False),
        ),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="TomePatchModel",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_tomesd",
        lower=patching("tome", "ratio"),
        inputs=(_MODEL, number("ratio", 0.3, 0.0, 1.0, step=0.01)),
        outputs=_OUT,
    ),
    _multiply("UNetSelfAttentionMultiply", "attn1"),
    _multiply("UNetCrossAttentionMultiply", "attn2"),
    NodeDeclaration(
        name="UNetTemporalAttentionMultiply",
        lower=_multiply_results,
        inputs=(
            _MODEL,
            *map(_factor, ("self_structural", "self_temporal", "cross_structural", "cross_temporal")),
        ),
        outputs=_OUT,
        **_EXPERIMENTS,  # type: ignore[arg-type]
    ),
    _process(
        "ModelSamplingDiscrete",
        "model_sampling_discrete",
        "sampling zsnr",
        combo("sampling", ("eps", "v_prediction", "lcm", "x0", "img_to_img")),
        switch("zsnr", False),
    ),
    _process(
        "ModelSamplingContinuousEDM",
        "model_sampling_edm",
        "sampling sigma_max sigma_min",
        combo("sampling", ("v_prediction", "edm", "edm_playground_v2.5", "eps", "cosmos_rflow")),
        _level("sigma_max", 120.0),
        _level("sigma_min", 0.002),
    ),
    _process(
        "ModelSamplingContinuousV",
        "model_sampling_v",
        "sampling sigma_max sigma_min",
        combo("sampling", ("v_prediction",)),
        _level("sigma_max", 500.0),
        _level("sigma_min", 0.03),
    ),
)
"""The declarations of this module, in the order of the node menu."""
