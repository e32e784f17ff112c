"""Name the types of values for annotations, as `comfy_api.latest.Input` does."""

from __future__ import annotations

from comfyserverless.host.api.io.sockets import Audio, Curve, Image, Latent, Mask

AudioInput = Audio.AudioDict
CurveInput = Curve.Type
ImageInput = Image.Type
LatentInput = Latent.LatentDict
MaskInput = Mask.Type
