"""Types without widgets, and types of packs."""

from __future__ import annotations

import pytest

from tests.unit.host.api.schemas import io

TYPES = {
    "AnyType": "*", "Image": "IMAGE", "Mask": "MASK", "Latent": "LATENT", "Conditioning": "CONDITIONING",
    "Model": "MODEL", "Clip": "CLIP", "Vae": "VAE", "ControlNet": "CONTROL_NET", "ClipVision": "CLIP_VISION",
    "ClipVisionOutput": "CLIP_VISION_OUTPUT", "StyleModel": "STYLE_MODEL", "Gligen": "GLIGEN",
    "UpscaleModel": "UPSCALE_MODEL", "LatentUpscaleModel": "LATENT_UPSCALE_MODEL", "Audio": "AUDIO",
    "Video": "VIDEO", "SVG": "SVG", "Sampler": "SAMPLER", "Sigmas": "SIGMAS", "Noise": "NOISE",
    "Guider": "GUIDER", "Hooks": "HOOKS", "HookKeyframes": "HOOK_KEYFRAMES", "LoraModel": "LORA_MODEL",
    "LossMap": "LOSS_MAP", "Mesh": "MESH", "Voxel": "VOXEL", "Load3D": "LOAD_3D", "Webcam": "WEBCAM",
    "Photomaker": "PHOTOMAKER", "AudioEncoder": "AUDIO_ENCODER", "AudioEncoderOutput": "AUDIO_ENCODER_OUTPUT",
    "Tracks": "TRACKS", "ModelPatch": "MODEL_PATCH", "LatentOperation": "LATENT_OPERATION",
    "BoundingBox": "BOUNDING_BOX", "BoundingBoxes": "BOUNDING_BOXES", "Color": "COLOR", "Colors": "COLORS",
    "Curve": "CURVE", "Range": "RANGE", "Histogram": "HISTOGRAM", "VideoEdit": "VIDEO_EDIT",
    "ImageCompare": "IMAGECOMPARE", "File3D": "FILE_3D", "Boolean": "BOOLEAN", "Int": "INT", "Float": "FLOAT",
    "String": "STRING", "Combo": "COMBO", "TimestepsRange": "TIMESTEPS_RANGE", "Load3DCamera": "LOAD3D_CAMERA",
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_type_has_its_name_at_both_ends(name: str) -> None:
    kind = getattr(io, name)
    end = kind.Input("x", tooltip="t", optional=True)
    assert (kind.io_type, end.get_io_type(), end.Parent) == (TYPES[name], TYPES[name], kind)
    assert (end.id, end.optional, end.as_dict()["tooltip"]) == ("x", True, "t")
    output = kind.Output(display_name="out", is_output_list=True)
    assert (output.get_io_type(), output.display_name, output.is_output_list) == (TYPES[name], "out", True)


def test_custom_type_is_one_by_its_name() -> None:
    custom = io.Custom("WIDGET_OF_MINE")
    assert custom.Input("x").get_io_type() == "WIDGET_OF_MINE"
    assert custom.Output().get_io_type() == "WIDGET_OF_MINE"
    assert issubclass(custom, io.ComfyTypeIO)


def test_class_of_a_pack_becomes_a_type_by_the_decorator() -> None:
    @io.comfytype(io_type="BASKET")
    class Basket(io.ComfyTypeIO):  # type: ignore[misc, name-defined]
        """A pack's type."""

        Type = list

        class Input(io.WidgetInput):  # type: ignore[misc, name-defined]
            """Its input, with a constructor of its own."""

            def __init__(self, id: str, fruits: int) -> None:
                super().__init__(id, extra_dict={"fruits": fruits})

    made = Basket.Input("b", fruits=3)
    assert (made.get_io_type(), made.as_dict()) == ("BASKET", {"fruits": 3})
    assert Basket.Output().get_io_type() == "BASKET"
    assert io.Image.Output().get_io_type() == "IMAGE"


def test_inputs_are_told_apart_by_class() -> None:
    assert isinstance(io.Int.Input("x"), io.Int.Input)
    assert isinstance(io.Int.Input("x"), io.WidgetInput)
    assert not isinstance(io.Image.Input("x"), io.WidgetInput)
    assert isinstance(io.Image.Input("x"), io.Input)
