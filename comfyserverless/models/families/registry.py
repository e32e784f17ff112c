"""List the supported families and find the one that a file belongs to."""

from __future__ import annotations

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.diffusers_names import has_diffusers_names, with_original_names
from comfyserverless.models.families import sd2, sd15, sdxl
from comfyserverless.models.families.base import Family, ModelFacts
from comfyserverless.models.reading.weights import Weights

FAMILIES: tuple[Family, ...] = (sd15.FAMILY, sd2.FAMILY, sdxl.FAMILY, sdxl.REFINER)

_PREFIXES = ("model.diffusion_model.", "diffusion_model.", "")


def find_network(root: Weights) -> Weights:
    """Return the diffusion network of a file, named without prefix (an empty prefix for files of their own)."""
    for prefix in _PREFIXES:
        part = root.below(prefix)
        if len(part):
            return with_original_names(part) if has_diffusers_names(part) else part
    raise ModelFileError(f"{root.path}: holds no tensors")


def identify(root: Weights) -> tuple[Family, ModelFacts]:
    """Return the family of a file and its facts. Raises ModelFileError if no family knows the file."""
    network = find_network(root)
    if "cc_projection.weight" in root:  # a U-Net of Stable Diffusion 1 by its own tensors
        raise ModelFileError(f"{root.path}: Stable Zero123, which sees a picture, is not supported")
    for family in FAMILIES:
        facts = family.describe(root, network)
        if facts is not None:
            return family, facts
    names = ", ".join(family.name for family in FAMILIES)
    raise ModelFileError(f"{root.path}: is no diffusion model of a supported family (supported: {names})")
