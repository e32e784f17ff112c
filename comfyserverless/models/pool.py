"""Hold the models of one worker by handle: load on first use, share, forget the least recently used.

Handles with equal files share the base weights; a LoRA adds only the layers that it changes. One lock
guards loading and the book-keeping, so the lanes of a worker may use the pool at the same time.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import replace

import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.autoencoder import Autoencoder, load_autoencoder
from comfyserverless.models.controlnet import ControlNet, load_controlnet
from comfyserverless.models.families.base import DiffusionModel, LoadedNetwork, ModelFacts
from comfyserverless.models.families.registry import find_network, identify
from comfyserverless.models.lora.keys import UNET_PREFIXES, clip_layer_names, clip_prefixes, unet_layer_names
from comfyserverless.models.lora.merge import merge_loras
from comfyserverless.models.modules import tensor_bytes
from comfyserverless.models.preview import LatentColours, fit_colours, guess_colours
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.shelf import Shelf
from comfyserverless.models.text.clip_files import ClipFile, find_clip_models
from comfyserverless.models.text.encoder import ClipPart, TextEncoder

_logger = logging.getLogger(__name__)


class ModelPool:
    """The models that a worker has in memory.

    budget_bytes: when more is loaded, the least recently used goes first (what a caller still holds lives on);
    None for no limit.
    """

    def __init__(self, device: torch.device | None = None, budget_bytes: int | None = None) -> None:
        self.device = device or torch.device("cpu")
        self._lock = threading.RLock()
        self._shelf = Shelf(budget_bytes)
        self._facts: dict[FileRef, ModelFacts] = {}
        self._colours: dict[FileRef, LatentColours] = {}

    def facts(self, ref: ModelRef) -> ModelFacts:
        """Return what the header of a diffusion model says. Raises ModelFileError for unsupported files."""
        with self._lock:
            if ref.file not in self._facts:
                with opened(ref.file) as root:
                    facts = identify(root)[1]
                if facts.in_channels > facts.latent_channels > 0:
                    raise ModelFileError(
                        f"{ref.file.path}: this {facts.family} model takes {facts.in_channels} input channels,"
                        " as inpainting models do, which are not supported (supported: models of"
                        f" {facts.latent_channels})"
                    )
                self._facts[ref.file] = facts
            return self._facts[ref.file]

    def diffusion(self, ref: ModelRef) -> DiffusionModel:
        """Return the diffusion model with its LoRAs merged; sampling patches are not its business.

        Raises ModelFileError for files that are missing, damaged or not supported.
        """
        with self._lock:
            base_key = f"network {ref.file}"
            network: LoadedNetwork = self._shelf.take(base_key, lambda: self._load_network(ref.file))
            loras = _effective(ref.loras)
            if not loras:
                return network.model({})
            key = f"network {ref.file} {loras}"
            return self._shelf.take(key, lambda: self._patch_network(network, loras), parent=base_key)

    def text(self, ref: ClipRef) -> TextEncoder:
        """Return the text encoder of one or more files, with LoRAs merged."""
        with self._lock:
            base_key = f"text {ref.files}"
            base = parts = self._shelf.take(base_key, lambda: self._load_clip(ref.files))
            if loras := _effective(ref.loras):
                key = f"text {ref.files} {loras}"
                parts = self._shelf.take(key, lambda: self._patch_clip(base, loras), parent=base_key)
            return TextEncoder(parts, ref.last_layer, ref.embeddings)

    def vae(self, ref: VaeRef) -> Autoencoder:
        """Return the autoencoder of a file."""
        with self._lock:
            return self._shelf.take(f"vae {ref.file}", lambda: self._load_vae(ref.file))

    def controlnet(self, ref: ControlNetRef) -> ControlNet:
        """Return a ControlNet."""
        with self._lock:
            return self._shelf.take(f"controlnet {ref.file}", lambda: self._load_controlnet(ref.file))

    def colours(self, ref: ModelRef) -> LatentColours:
        """Return the map from a model's latents to preview colours, fitted once to the file's autoencoder."""
        with self._lock:
            if ref.file not in self._colours:
                self._colours[ref.file] = self._find_colours(ref)
            return self._colours[ref.file]

    @property
    def weights_bytes(self) -> int:
        """Bytes of all loaded weights, shared ones counted once; never waits for a load."""
        return self._shelf.total_bytes

    def unload_all(self) -> None:
        """Forget every model."""
        with self._lock:
            self._shelf.clear()

    def _find_colours(self, ref: ModelRef) -> LatentColours:
        """Fit the colours, or guess them: no prompt must fail over its previews."""
        channels = self.facts(ref).latent_channels
        try:
            vae = self.vae(VaeRef(ref.file))
            if vae.latent_channels == channels:
                return fit_colours(vae)
        except (ModelFileError, ArithmeticError) as exc:
            _logger.warning("%s: previews have plain colours: %s", ref.file.path, exc)
        return guess_colours(channels)

    def _load_network(self, file: FileRef) -> tuple[LoadedNetwork, int]:
        with opened(file) as root:
            family, facts = identify(root)
            network = family.load(find_network(root), facts, self.device)
        return network, tensor_bytes(network.parameters())

    def _load_clip(self, files: tuple[FileRef, ...]) -> tuple[tuple[ClipPart, ...], int]:
        with ExitStack() as stack:
            roots = [stack.enter_context(opened(file)) for file in files]
            found = {model.kind: model for root in roots for model in _clip_models(root)}
            parts = tuple(
                ClipPart(
                    model.kind,
                    model.config,
                    {name: tensor.to(self.device) for name, tensor in model.load().items()},
                    default_stop=None if model.kind == "l" and len(found) == 1 else -2,
                    is_hidden_normalized=model.kind != "g" and len(found) == 1,
                )
                for model in sorted(found.values(), key=lambda model: "lhg".index(model.kind))
            )
        return parts, sum(tensor_bytes(part.weights) for part in parts)

    def _load_vae(self, file: FileRef) -> tuple[Autoencoder, int]:
        with opened(file) as root:
            vae = load_autoencoder(root, self.device)
        return vae, vae.weights_bytes

    def _load_controlnet(self, file: FileRef) -> tuple[ControlNet, int]:
        with opened(file) as root:
            controlnet = load_controlnet(root, self.device)
        return controlnet, controlnet.weights_bytes

    def _patch_network(self, network: LoadedNetwork, loras: tuple[LoraRef, ...]) -> tuple[DiffusionModel, int]:
        changed = merge_loras(loras, network.parameters(), unet_layer_names(network.names), UNET_PREFIXES)
        return network.model(changed), tensor_bytes(changed)

    def _patch_clip(
        self, parts: tuple[ClipPart, ...], loras: tuple[LoraRef, ...]
    ) -> tuple[tuple[ClipPart, ...], int]:
        patched, size_bytes = [], 0
        for part in parts:
            names = clip_layer_names(part.kind, len(parts) > 1, part.weights)
            changed = merge_loras(loras, part.weights, names, clip_prefixes(part.kind, len(parts) > 1))
            patched.append(replace(part, weights={**part.weights, **changed}))
            size_bytes += tensor_bytes(changed)
        return tuple(patched), size_bytes


def _clip_models(root: Weights) -> list[ClipFile]:
    """Find the text models of a file. Raises ModelFileError; of a file of no known family it says only that."""
    try:
        return find_clip_models(root)
    except ModelFileError:
        identify(root)
        raise


def _effective(loras: tuple[LoraRef, ...]) -> tuple[LoraRef, ...]:
    """Leave out LoRAs of strength zero, which change nothing."""
    return tuple(lora for lora in loras if lora.strength != 0.0)
