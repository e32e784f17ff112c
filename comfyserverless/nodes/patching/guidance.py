"""Nodes that change how positive and negative are put together."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.nodes.patching.handles import patching
from comfyserverless.nodes.specs import number, socket, text, whole
from comfyserverless.nodes.taking import Inputs

_MODEL = socket("model", "MODEL")
_OUT = (OutputSpec("MODEL"),)
_PATCHED = (OutputSpec("MODEL", "patched_model"),)
_FINE = {"step": 0.01}
_SHARE = {"step": 0.001}


def _sag(inputs: Inputs) -> dict[str, float]:
    return {"scale": inputs["scale"], "blur_sigma": inputs["blur_sigma"]}


def _video(name: str, patch: str) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=name,
        category="sampling/video_models",
        python_module="comfy_extras.nodes_video_model",
        lower=patching(patch, "min_cfg"),
        inputs=(_MODEL, number("min_cfg", 1.0, 0.0, 100.0, step=0.5, round=0.01)),
        outputs=_OUT,
    )


def _skip_layers(name: str, module: str, *inputs: InputSpec) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        category="advanced/guidance",
        python_module=module,
        experimental=True,
        lower=patching("skip_layers"),
        inputs=(_MODEL, *inputs),
        outputs=_OUT,
    )


_SLG = "comfy_extras.nodes_slg"
_LAYERS = {"default": "7, 8, 9", "multiline": False}

NODES = (
    NodeDeclaration(
        name="RescaleCFG",
        display_name="RescaleCFG",
        category="advanced/model",
        python_module="comfy_extras.nodes_model_advanced",
        lower=patching("rescale_cfg", "multiplier"),
        inputs=(_MODEL, number("multiplier", 0.7, 0.0, 1.0, **_FINE)),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="APG",
        display_name="Adaptive Projected Guidance",
        category="sampling/custom_sampling",
        python_module="comfy_extras.nodes_apg",
        lower=patching("apg", "eta norm_threshold momentum"),
        inputs=(
            _MODEL,
            number("eta", 1.0, -10.0, 10.0, **_FINE),
            number("norm_threshold", 5.0, 0.0, 50.0, step=0.1),
            number("momentum", 0.0, -5.0, 1.0, **_FINE),
        ),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="CFGNorm",
        category="advanced/guidance",
        python_module="comfy_extras.nodes_cfg",
        experimental=True,
        lower=patching("cfg_norm", "strength"),
        inputs=(_MODEL, number("strength", 1.0, 0.0, 100.0, **_FINE)),
        outputs=_PATCHED,
    ),
    NodeDeclaration(
        name="CFGZeroStar",
        category="advanced/guidance",
        python_module="comfy_extras.nodes_cfg",
        lower=patching("cfg_zero_star"),
        inputs=(_MODEL,),
        outputs=_PATCHED,
    ),
    NodeDeclaration(
        name="Mahiro",
        display_name="Mahiro CFG",
        category="_for_testing",
        python_module="comfy_extras.nodes_mahiro",
        experimental=True,
        lower=patching("mahiro"),
        inputs=(_MODEL,),
        outputs=_PATCHED,
    ),
    NodeDeclaration(
        name="TCFG",
        display_name="Tangential Damping CFG",
        category="advanced/guidance",
        python_module="comfy_extras.nodes_tcfg",
        lower=patching("tcfg"),
        inputs=(_MODEL,),
        outputs=_PATCHED,
    ),
    NodeDeclaration(
        name="FreSca",
        display_name="FreSca",
        category="_for_testing",
        python_module="comfy_extras.nodes_fresca",
        experimental=True,
        lower=patching("fresca", "scale_low scale_high freq_cutoff"),
        inputs=(
            _MODEL,
            number("scale_low", 1.0, 0, 10, **_FINE),
            number("scale_high", 1.25, 0, 10, **_FINE),
            whole("freq_cutoff", 20, 1, 10000, step=1),
        ),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="RenormCFG",
        category="advanced/model",
        python_module="comfy_extras.nodes_lumina2",
        lower=patching("renorm_cfg", "cfg_trunc renorm_cfg"),
        inputs=(
            _MODEL,
            number("cfg_trunc", 100, 0.0, 100.0, **_FINE),
            number("renorm_cfg", 1.0, 0.0, 100.0, **_FINE),
        ),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="Epsilon Scaling",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_eps",
        lower=patching("epsilon_scaling", "scaling_factor"),
        inputs=(_MODEL, number("scaling_factor", 1.005, 0.5, 1.5, step=0.001, display="number")),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="TemporalScoreRescaling",
        display_name="TSR - Temporal Score Rescaling",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_eps",
        lower=patching("rescale_score", "tsr_k tsr_sigma"),
        inputs=(
            _MODEL,
            number("tsr_k", 0.95, 0.01, 100.0, step=0.001, display="number"),
            number("tsr_sigma", 1.0, 0.01, 100.0, step=0.001, display="number"),
        ),
        outputs=(OutputSpec("MODEL", "patched_model"),),
    ),
    _video("VideoLinearCFGGuidance", "video_linear_cfg"),
    _video("VideoTriangleCFGGuidance", "video_triangle_cfg"),
    NodeDeclaration(
        name="PerturbedAttentionGuidance",
        category="model_patches/unet",
        python_module="comfy_extras.nodes_pag",
        lower=patching("pag", "scale"),
        inputs=(_MODEL, number("scale", 3.0, 0.0, 100.0, step=0.01, round=0.01)),
        outputs=_OUT,
    ),
    NodeDeclaration(
        name="SelfAttentionGuidance",
        display_name="Self-Attention Guidance",
        category="_for_testing",
        python_module="comfy_extras.nodes_sag",
        experimental=True,
        lower=patching("sag", _sag),
        inputs=(
            _MODEL,
            number("scale", 0.5, -2.0, 5.0, **_FINE),
            number("blur_sigma", 2.0, 0.0, 10.0, step=0.1),
        ),
        outputs=_OUT,
    ),
    _skip_layers(
        "SkipLayerGuidanceDiT",
        _SLG,
        text("double_layers", **_LAYERS),
        text("single_layers", **_LAYERS),
        number("scale", 3.0, 0.0, 10.0, step=0.1),
        number("start_percent", 0.01, 0.0, 1.0, **_SHARE),
        number("end_percent", 0.15, 0.0, 1.0, **_SHARE),
        number("rescaling_scale", 0.0, 0.0, 10.0, **_FINE),
    ),
    _skip_layers(
        "SkipLayerGuidanceDiTSimple",
        _SLG,
        text("double_layers", **_LAYERS),
        text("single_layers", **_LAYERS),
        number("start_percent", 0.0, 0.0, 1.0, **_SHARE),
        number("end_percent", 1.0, 0.0, 1.0, **_SHARE),
    ),
    _skip_layers(
        "SkipLayerGuidanceSD3",
        "comfy_extras.nodes_sd3",
        text("layers", **_LAYERS),
        number("scale", 3.0, 0.0, 10.0, step=0.1),
        number("start_percent", 0.01, 0.0, 1.0, **_SHARE),
        number("end_percent", 0.15, 0.0, 1.0, **_SHARE),
    ),
)
"""The declarations of this module, in the order of the node menu."""
