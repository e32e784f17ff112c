"""Schemas of nodes as ComfyUI declares them, to be compared with what it says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from comfyserverless.host.api.io.names import NAMES

io: Any = SimpleNamespace(**NAMES)
"""What packs import as `comfy_api.latest.io`."""


def _crop() -> Any:
    return io.Combo.Input("crop", options=["disabled", "center"], default="center")


def _side(name: str) -> Any:
    return io.Int.Input(name, default=512, min=0, max=16384, step=1)


def _resize() -> Any:
    template = io.MatchType.Template("input_type", [io.Image, io.Mask])
    options = {
        "scale by multiplier": [io.Float.Input("multiplier", default=1.0, min=0.01, max=8.0, step=0.01)],
        "scale dimensions": [_side("width"), _side("height"), _crop()],
        "scale longer dimension": [_side("longer_size")],
        "scale shorter dimension": [_side("shorter_size")],
        "scale width": [_side("width")],
        "scale height": [_side("height")],
        "scale total pixels": [io.Float.Input("megapixels", default=1.0, min=0.01, max=16.0, step=0.01)],
        "match size": [io.MultiType.Input("match", [io.Image, io.Mask]), _crop()],
    }
    methods = ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"]
    return io.Schema(
        node_id="ResizeImageMaskNode",
        display_name="Resize Image/Mask",
        category="transform",
        inputs=[
            io.MatchType.Input("input", template=template),
            io.DynamicCombo.Input(
                "resize_type", options=[io.DynamicCombo.Option(key, inputs) for key, inputs in options.items()]
            ),
            io.Combo.Input("scale_method", options=methods, default="area"),
        ],
        outputs=[io.MatchType.Output(template=template, display_name="resized")],
    )


def _batch() -> Any:
    template = io.Autogrow.TemplatePrefix(io.Image.Input("image"), prefix="image", min=2, max=50)
    return io.Schema(
        node_id="BatchImagesNode",
        display_name="Batch Images",
        category="image",
        inputs=[io.Autogrow.Input("images", template=template)],
        outputs=[io.Image.Output()],
    )


def _switch() -> Any:
    template = io.MatchType.Template("switch")
    return io.Schema(
        node_id="ComfySwitchNode",
        display_name="Switch",
        category="logic",
        is_experimental=True,
        inputs=[
            io.Boolean.Input("switch"),
            io.MatchType.Input("on_false", template=template, lazy=True),
            io.MatchType.Input("on_true", template=template, lazy=True),
        ],
        outputs=[io.MatchType.Output(template=template, display_name="output")],
    )


def _save_webm() -> Any:
    return io.Schema(
        node_id="SaveWEBM",
        category="image/video",
        is_experimental=True,
        is_output_node=True,
        inputs=[
            io.Image.Input("images"),
            io.String.Input("filename_prefix", default="ComfyUI"),
            io.Combo.Input("codec", options=["vp9", "av1"]),
            io.Float.Input("fps", default=24.0, min=0.01, max=1000.0, step=0.01),
            io.Float.Input("crf", default=32.0, min=0, max=63.0, step=1),
        ],
    )


def _split_sigmas() -> Any:
    return io.Schema(
        node_id="SplitSigmas",
        category="sampling/custom_sampling/sigmas",
        inputs=[io.Sigmas.Input("sigmas"), io.Int.Input("step", default=0, min=0, max=10000)],
        outputs=[
            io.Sigmas.Output(display_name="high_sigmas"),
            io.Sigmas.Output(display_name="low_sigmas"),
        ],
    )


def _create_video() -> Any:
    return io.Schema(
        node_id="CreateVideo",
        display_name="Create Video",
        category="image/video",
        inputs=[
            io.Image.Input("images"),
            io.Float.Input("fps", default=30.0, min=1.0, max=120.0, step=1.0),
            io.Audio.Input("audio", optional=True),
        ],
        outputs=[io.Video.Output()],
    )


def _save_audio() -> Any:
    return io.Schema(
        node_id="SaveAudio",
        display_name="Save Audio (FLAC)",
        category="audio",
        is_output_node=True,
        inputs=[io.Audio.Input("audio"), io.String.Input("filename_prefix", default="audio/ComfyUI")],
    )


def _empty_latent() -> Any:
    return io.Schema(
        node_id="EmptyHunyuanLatentVideo",
        display_name="Empty HunyuanVideo 1.0 Latent",
        category="latent/video",
        inputs=[
            io.Int.Input("width", default=848, min=16, max=16384, step=16),
            io.Int.Input("height", default=480, min=16, max=16384, step=16),
            io.Int.Input("length", default=25, min=1, max=16384, step=4),
            io.Int.Input("batch_size", default=1, min=1, max=4096),
        ],
        outputs=[io.Latent.Output()],
    )


def _lora_save() -> Any:
    return io.Schema(
        node_id="LoraSave",
        display_name="Extract and Save Lora",
        category="_for_testing",
        is_experimental=True,
        is_output_node=True,
        inputs=[
            io.String.Input("filename_prefix", default="loras/ComfyUI_extracted_lora"),
            io.Int.Input("rank", default=8, min=1, max=4096, step=1),
            io.Combo.Input("lora_type", options=("standard", "full_diff")),
            io.Boolean.Input("bias_diff", default=True),
            io.Model.Input("model_diff", optional=True),
            io.Clip.Input("text_encoder_diff", optional=True),
        ],
    )


def _preview_3d() -> Any:
    return io.Schema(
        node_id="Preview3D",
        display_name="Preview 3D & Animation",
        category="3d",
        is_experimental=True,
        is_output_node=True,
        inputs=[
            io.String.Input("model_file", default="", multiline=False),
            io.Load3DCamera.Input("camera_info", optional=True),
            io.Image.Input("bg_image", optional=True),
        ],
    )


SCHEMAS = {
    make().node_id: make
    for make in (
        _resize,
        _batch,
        _switch,
        _save_webm,
        _split_sigmas,
        _create_video,
        _save_audio,
        _empty_latent,
        _lora_save,
        _preview_3d,
    )
}
"""Class name -> makes its schema."""
