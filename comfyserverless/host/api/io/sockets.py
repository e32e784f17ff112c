"""Define the types without widgets: what travels over links only."""

from __future__ import annotations

from typing import Any, TypedDict

import torch

from comfyserverless.host.api.io.base import ComfyTypeI, ComfyTypeIO, WidgetInput, taking
from comfyserverless.host.api.media.shapes import MESH, SVG_TEXT, VOXEL, File3DData


class AnyType(ComfyTypeIO, io_type="*"):
    """Whatever it is."""


class Image(ComfyTypeIO, io_type="IMAGE"):
    """Pictures: [B, H, W, C] float, 0..1."""

    Type = torch.Tensor


class WanCameraEmbedding(ComfyTypeIO, io_type="WAN_CAMERA_EMBEDDING"):
    """How a camera moves, as numbers."""

    Type = torch.Tensor


class Webcam(ComfyTypeIO, io_type="WEBCAM"):
    """A picture taken by the browser."""

    Type = str
    Input = WidgetInput


class Mask(ComfyTypeIO, io_type="MASK"):
    """Masks: [B, H, W] float, 1 is masked."""

    Type = torch.Tensor


class Latent(ComfyTypeIO, io_type="LATENT"):
    """Latents: a dict with `samples`."""

    class LatentDict(TypedDict, total=False):
        """What a latent may hold."""

        samples: torch.Tensor
        noise_mask: torch.Tensor
        batch_index: list[int]
        type: str

    Type = LatentDict


class Conditioning(ComfyTypeIO, io_type="CONDITIONING"):
    """What a text asks for: a list of [tensor, dict]."""

    class PooledDict(TypedDict, total=False):
        """What an entry may hold beside its tensor; others are possible."""

        pooled_output: torch.Tensor
        control: Any
        strength: float
        mask: torch.Tensor
        start_percent: float
        end_percent: float

    CondList = list[tuple[torch.Tensor, PooledDict]]
    Type = CondList


class Audio(ComfyTypeIO, io_type="AUDIO"):
    """Sound: waveform [B, C, T] and its samples per second."""

    class AudioDict(TypedDict):
        """What a sound holds."""

        waveform: torch.Tensor
        sample_rate: int

    Type = AudioDict


class Video(ComfyTypeIO, io_type="VIDEO"):
    """A film: an object with `get_components`, `save_to` ... (`media.video`)."""


class SVG(ComfyTypeIO, io_type="SVG"):
    """Vector pictures."""

    Type = SVG_TEXT


class Voxel(ComfyTypeIO, io_type="VOXEL"):
    """Solids made of cubes."""

    Type = VOXEL


class Mesh(ComfyTypeIO, io_type="MESH"):
    """Solids made of triangles."""

    Type = MESH


class Tracks(ComfyTypeIO, io_type="TRACKS"):
    """Paths of points through a film."""

    class TrackDict(TypedDict):
        """Where points are ([1, T, N, 2]) and when they are seen ([1, T, N])."""

        track_path: torch.Tensor
        track_visibility: torch.Tensor

    Type = TrackDict


class FlowControl(ComfyTypeIO, io_type="FLOW_CONTROL"):
    """Connects the ends of a loop."""

    Type = tuple


class Accumulation(ComfyTypeIO, io_type="ACCUMULATION"):
    """What a loop has gathered."""

    class AccumulationDict(TypedDict):
        """The values in order."""

        accum: list[Any]

    Type = AccumulationDict


class Load3DCamera(ComfyTypeIO, io_type="LOAD3D_CAMERA"):
    """Where the camera of a 3D view stands."""

    class CameraInfo(TypedDict, total=False):
        """Position, target, zoom and kind of a camera."""

        position: dict[str, float]
        target: dict[str, float]
        zoom: int
        cameraType: str

    Type = CameraInfo


class Load3DModelInfo(ComfyTypeIO, io_type="LOAD3D_MODEL_INFO"):
    """How the model of a 3D view is placed."""


class Load3D(ComfyTypeIO, io_type="LOAD_3D"):
    """A 3D view of the browser: the files that it made."""

    class Model3DDict(TypedDict, total=False):
        """Annotated names of what was drawn, and the camera."""

        image: str
        mask: str
        normal: str
        camera_info: Any
        recording: str

    Type = Model3DDict
    Input = WidgetInput


class Load3DAnimation(Load3D, io_type="LOAD_3D_ANIMATION"):
    """A 3D view with an animation."""


class BoundingBoxInput(WidgetInput):
    """A box, with a widget to draw it."""

    parameters = taking(
        "id",
        display_name=None,
        optional=False,
        tooltip=None,
        socketless=True,
        default=None,
        component=None,
        force_input=None,
        extra_dict=None,
        raw_link=None,
        advanced=None,
        lazy=None,
        widget_type=None,
    )

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        component = getattr(self, "component", None)
        return {**({"component": component} if component else {}), **super().as_dict()}


class BoundingBox(ComfyTypeIO, io_type="BOUNDING_BOX"):
    """A box in a picture, px."""

    class BoundingBoxDict(TypedDict):
        """Corner and sides, px."""

        x: int
        y: int
        width: int
        height: int

    Type = BoundingBoxDict
    Input = BoundingBoxInput


class BoundingBoxes(ComfyTypeIO, io_type="BOUNDING_BOXES"):
    """Boxes in a picture."""

    Type = list
    Input = BoundingBoxInput


class Color(ComfyTypeIO, io_type="COLOR"):
    """A color as `#rrggbb`."""

    Type = str
    Input = WidgetInput


class Colors(ComfyTypeIO, io_type="COLORS"):
    """Colors as `#rrggbb`."""

    Type = list
    Input = WidgetInput


class Curve(ComfyTypeIO, io_type="CURVE"):
    """A curve through points."""

    Type = list
    Input = WidgetInput


class Range(ComfyTypeIO, io_type="RANGE"):
    """From where to where."""

    Type = dict
    Input = WidgetInput


class VideoEdit(ComfyTypeIO, io_type="VIDEO_EDIT"):
    """Cuts of a film made in the page."""

    Input = WidgetInput


class Histogram(ComfyTypeIO, io_type="HISTOGRAM"):
    """How often each brightness occurs."""

    Type = list


class ImageCompare(ComfyTypeI, io_type="IMAGECOMPARE"):
    """A widget that shows two pictures."""

    Type = dict
    Input = WidgetInput


class File3D(ComfyTypeIO, io_type="FILE_3D"):
    """A file with a 3D model, of any kind."""

    Type = File3DData


def _named(name: str, io_type: str, type_hint: Any = Any, doc: str = "") -> type[ComfyTypeIO]:
    """Make a type that has nothing of its own but its name."""
    made = type(
        name, (ComfyTypeIO,), {"Type": type_hint, "__module__": __name__, "__doc__": doc}, io_type=io_type
    )
    made.__qualname__ = name
    return made


File3DGLB = _named("File3DGLB", "FILE_3D_GLB", File3DData)
File3DGLTF = _named("File3DGLTF", "FILE_3D_GLTF", File3DData)
File3DFBX = _named("File3DFBX", "FILE_3D_FBX", File3DData)
File3DOBJ = _named("File3DOBJ", "FILE_3D_OBJ", File3DData)
File3DSTL = _named("File3DSTL", "FILE_3D_STL", File3DData)
File3DUSDZ = _named("File3DUSDZ", "FILE_3D_USDZ", File3DData)
File3DPLY = _named("File3DPLY", "FILE_3D_PLY", File3DData)
File3DSPLAT = _named("File3DSPLAT", "FILE_3D_SPLAT", File3DData)

Model = _named("Model", "MODEL", doc="Diffusion models.")
Clip = _named("Clip", "CLIP", doc="Text encoders.")
Vae = _named("Vae", "VAE", doc="Autoencoders.")
ControlNet = _named("ControlNet", "CONTROL_NET")
ClipVision = _named("ClipVision", "CLIP_VISION")
ClipVisionOutput = _named("ClipVisionOutput", "CLIP_VISION_OUTPUT")
StyleModel = _named("StyleModel", "STYLE_MODEL")
Gligen = _named("Gligen", "GLIGEN")
UpscaleModel = _named("UpscaleModel", "UPSCALE_MODEL")
LatentUpscaleModel = _named("LatentUpscaleModel", "LATENT_UPSCALE_MODEL")
LatentOperation = _named("LatentOperation", "LATENT_OPERATION")
ModelPatch = _named("ModelPatch", "MODEL_PATCH")
BackgroundRemoval = _named("BackgroundRemoval", "BACKGROUND_REMOVAL")
AudioEncoder = _named("AudioEncoder", "AUDIO_ENCODER")
AudioEncoderOutput = _named("AudioEncoderOutput", "AUDIO_ENCODER_OUTPUT")
AudioRecord = _named("AudioRecord", "AUDIO_RECORD", dict)
Sampler = _named("Sampler", "SAMPLER")
Sigmas = _named("Sigmas", "SIGMAS", torch.Tensor, doc="Noise levels: [N] float, descending.")
Noise = _named("Noise", "NOISE", torch.Tensor)
Guider = _named("Guider", "GUIDER")
Hooks = _named("Hooks", "HOOKS")
HookKeyframes = _named("HookKeyframes", "HOOK_KEYFRAMES")
TimestepsRange = _named("TimestepsRange", "TIMESTEPS_RANGE", tuple)
LoraModel = _named("LoraModel", "LORA_MODEL", dict)
LossMap = _named("LossMap", "LOSS_MAP", dict)
Photomaker = _named("Photomaker", "PHOTOMAKER")
Point = _named("Point", "POINT")
FaceAnalysis = _named("FaceAnalysis", "FACE_ANALYSIS")
BBOX = _named("BBOX", "BBOX")
SEGS = _named("SEGS", "SEGS")
Splat = _named("Splat", "SPLAT")


def Custom(io_type: str) -> type[ComfyTypeIO]:
    """Return a type of a pack's own, by its name."""
    return _named(io_type, io_type)
