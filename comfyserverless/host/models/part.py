"""Make handles of models the objects that packs know, and those again handles, in the node host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from comfyserverless.core.hosting import Catalog
from comfyserverless.core.samplers import SAMPLER_NAMES, SCHEDULER_NAMES
from comfyserverless.core.values import ClipRef, ControlNetRef, ModelRef, UpscaleRef, VaeRef
from comfyserverless.host import values
from comfyserverless.host.contract import ClassEntry
from comfyserverless.host.encoders import control
from comfyserverless.host.encoders.autoencoder import VAE
from comfyserverless.host.encoders.text import CLIP
from comfyserverless.host.encoders.upscaler import UpscaleModel
from comfyserverless.host.library.classes import make_class
from comfyserverless.host.library.custom import LOCAL
from comfyserverless.host.loading.registry import REGISTRY
from comfyserverless.host.models import scratch
from comfyserverless.host.models.patcher import ModelPatcher
from comfyserverless.host.sampling import guiders, methods, noise
from comfyserverless.host.sampling.ksampler import KSampler

_FOLDER = "objects"


def attach(parts: Any) -> None:
    """Register the conversions, and say where files of packs' objects lie."""
    private = parts.plan.output or parts.plan.settings.http
    if private:
        scratch.install(Path(private).parent / _FOLDER)
    register()
    parts.loaded.append(add_names)
    for name, base in LOCAL.items():
        REGISTRY.add_own(ClassEntry(name, make_class(name, {}, base), "nodes", name))


def add_names(catalog: Catalog) -> Catalog:
    """Name the samplers and schedulers that packs have added to the lists of nodes."""
    return msgspec.structs.replace(
        catalog,
        samplers=tuple(name for name in KSampler.SAMPLERS if name not in SAMPLER_NAMES),
        schedulers=tuple(name for name in KSampler.SCHEDULERS if name not in SCHEDULER_NAMES),
    )


def register() -> None:
    """Register the conversions."""
    for handle, cls in (
        (ModelRef, ModelPatcher),
        (ClipRef, CLIP),
        (VaeRef, VAE),
        (UpscaleRef, UpscaleModel),
    ):
        values.register(handle, wrap=cls.of, unwrap_type=cls, unwrap=cls.to_ref)
    values.register(ControlNetRef, wrap=control.ControlNet.of)
    values.register(None, unwrap_type=control.ControlBase, unwrap=control.applications_of)
    values.register(None, unwrap_type=control.ControlNet, unwrap=control.to_tree)
    values.register(None, unwrap_type=guiders.CFGGuider, unwrap=guiders.guider_tree)
    values.register(None, unwrap_type=methods.KSAMPLER, unwrap=methods.sampler_tree)
    for noise_class in (noise.RandomNoise, noise.EmptyNoise):
        values.register(None, unwrap_type=noise_class, unwrap=noise.noise_tree)
    values.register_option("control", control.chain_of)
    values.register_kind("SAMPLER", methods.sampler_of)
    values.register_kind("NOISE", noise.noise_of)
    values.register_kind("GUIDER", guiders.guider_of)
