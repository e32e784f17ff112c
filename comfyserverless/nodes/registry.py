"""Hold the declarations of the built-in nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comfyserverless.graph.declaration import Declarations, NodeDeclaration
from comfyserverless.nodes import (
    conditioning,
    controlnet,
    image,
    inpaint,
    latent,
    loaders,
    mask,
    sampling,
    vae,
)
from comfyserverless.nodes.conditionings import defaults as conditioning_defaults
from comfyserverless.nodes.conditionings import editing as conditioning_editing
from comfyserverless.nodes.conditionings import inpainting as conditioning_inpainting
from comfyserverless.nodes.conditionings import properties as conditioning_properties
from comfyserverless.nodes.custom_sampling import running as custom_running
from comfyserverless.nodes.custom_sampling import samplers as custom_samplers
from comfyserverless.nodes.custom_sampling import sigmas as custom_sigmas
from comfyserverless.nodes.images import changing as image_changing
from comfyserverless.nodes.images import combining as image_combining
from comfyserverless.nodes.latents import changing as latent_changing
from comfyserverless.nodes.merging import extracting, factors, merging
from comfyserverless.nodes.merging import saving as model_saving
from comfyserverless.nodes.patching import guidance as patching_guidance
from comfyserverless.nodes.patching import networks as patching_networks
from comfyserverless.nodes.patching import operations as patching_operations
from comfyserverless.nodes.tiles import autoencoder as tiled_vae
from comfyserverless.nodes.tiles import upscaling
from comfyserverless.nodes.utility import (
    batches,
    choosing,
    loops,
    mosaics,
    numbers,
    patterns,
    primitives,
    resizing,
    showing,
    texts,
)
from comfyserverless.nodes.utility import saving as utility_saving


class Registry:
    """A fixed set of declarations. Raises ValueError if two have the same name."""

    def __init__(self, declarations: Iterable[NodeDeclaration]) -> None:
        self._by_name: dict[str, NodeDeclaration] = {}
        for declaration in declarations:
            if declaration.name in self._by_name:
                raise ValueError(f"node class {declaration.name} is declared twice")
            self._by_name[declaration.name] = declaration

    def get(self, name: str) -> NodeDeclaration | None:
        """Return the declaration of a class, None if there is none."""
        return self._by_name.get(name)

    def names(self) -> Sequence[str]:
        """List all class names in registration order."""
        return tuple(self._by_name)


BUILTIN: Declarations = Registry(
    (
        *sampling.NODES,
        *custom_running.NODES,
        *custom_samplers.NODES,
        *custom_sigmas.NODES,
        *loaders.NODES,
        *conditioning.NODES,
        *conditioning_editing.NODES,
        *vae.NODES,
        *tiled_vae.NODES,
        *latent.NODES,
        *latent_changing.NODES,
        *image.NODES,
        *image_combining.NODES,
        *image_changing.NODES,
        *mask.NODES,
        *inpaint.NODES,
        *conditioning_inpainting.NODES,
        *upscaling.NODES,
        *merging.NODES,
        *extracting.NODES,
        *factors.NODES,
        *model_saving.NODES,
        *conditioning_defaults.NODES,
        *conditioning_properties.NODES,
        *controlnet.NODES,
        *choosing.NODES,
        *primitives.NODES,
        *numbers.NODES,
        *texts.NODES,
        *patterns.NODES,
        *showing.NODES,
        *batches.NODES,
        *resizing.NODES,
        *utility_saving.NODES,
        *loops.NODES,
        *mosaics.NODES,
        *patching_guidance.NODES,
        *patching_networks.NODES,
        *patching_operations.NODES,
    )
)
"""All node classes that this version has."""
