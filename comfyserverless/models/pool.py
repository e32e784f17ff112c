"""Hold the models of one worker by handle: know them by their files, share them, give them private layers.

Handles with equal files share the base's layers; a LoRA adds only the layers that it changes. What is taken
from here has no weights yet: they come layer by layer when it runs, and leave as the keeper says. One lock
guards the book-keeping, so the lanes of a worker may use the pool at the same time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.memory import WeightsPicture
from comfyserverless.core.values import (
    ClipRef,
    ControlNetRef,
    FileRef,
    LoraRef,
    ModelRef,
    UpscaleRef,
    VaeRef,
    WeightChange,
)
from comfyserverless.models.adapters.adapter import T2IAdapter, load_adapter
from comfyserverless.models.adapters.layout import find_adapter
from comfyserverless.models.autoencoder import Autoencoder, load_autoencoder
from comfyserverless.models.controlnet import ControlNet, load_controlnet
from comfyserverless.models.exporting.encoders import ExportedClip
from comfyserverless.models.exporting.entries import Entry
from comfyserverless.models.exporting.tensors import clip_scale, network_entries, parameter_entries
from comfyserverless.models.families.base import DiffusionModel, LoadedNetwork, ModelFacts
from comfyserverless.models.families.registry import find_network, identify
from comfyserverless.models.lora.keys import UNET_PREFIXES, clip_layer_names, clip_prefixes, unet_layer_names
from comfyserverless.models.lora.merge import plan_loras
from comfyserverless.models.lora.mixing import Change, plan_merge
from comfyserverless.models.lora.patched import patch_model
from comfyserverless.models.previews.previewer import Previewer
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.picture import draw_weights, variant_of
from comfyserverless.models.resident.profiles import ProfileStore
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.models.resident.skeleton import gather
from comfyserverless.models.resident.transfer import Transfer
from comfyserverless.models.shelf import Shelf
from comfyserverless.models.text.clip import ClipConfig, clip_order
from comfyserverless.models.text.clip_files import ClipFile, ClipKind, find_clip_models
from comfyserverless.models.text.encoder import ClipPart, TextEncoder
from comfyserverless.models.tiny.autoencoder import TinyAutoencoder, find_parts
from comfyserverless.models.tiny.decoder import TinyDecoder, load_decoder
from comfyserverless.models.upscaling.upscaler import Upscaler, load_upscaler
from comfyserverless.residency.policy import PolicyName


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a pool uses memory.

    device_bytes: budget of all weights on the device, None for no limit; host_bytes: of the host tier, as
    weights go to the device; policy: how weights leave; link_gbps: of an emulated link to the device;
    profiles_folder: where measured layer times are kept between runs, None for nowhere.
    """

    device_bytes: int | None = None
    host_bytes: int = 0
    policy: PolicyName = "layers"
    link_gbps: float | None = None
    profiles_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class _Clip:
    """One text model of a file."""

    kind: ClipKind
    config: ClipConfig
    resident: ResidentModel


class ModelPool:
    """The models that a worker knows, and their weights."""

    def __init__(self, device: torch.device | None = None, options: PoolOptions | None = None) -> None:
        self.device = device or torch.device("cpu")
        options = options or PoolOptions()
        budget_bytes = sys.maxsize if options.device_bytes is None else options.device_bytes
        transfer = Transfer(self.device, options.host_bytes, options.link_gbps)
        link = "" if options.link_gbps is None else f"{options.link_gbps} Gbit/s"
        profiles = ProfileStore(options.profiles_folder, _name_of(self.device), link)
        self.keeper = Keeper(transfer, budget_bytes, options.policy, profiles)
        self.residence = Residence(self.keeper)
        self._shelf = Shelf(self.keeper)
        self._lock = threading.RLock()
        self._facts: dict[FileRef, ModelFacts] = {}
        self.previewer = Previewer(self)

    def facts(self, ref: ModelRef) -> ModelFacts:
        """Return what the header of a diffusion model says. Raises ModelFileError for unsupported files."""
        with self._lock:
            if ref.file not in self._facts:
                with opened(ref.file) as root:
                    facts = identify(root)[1]
                known = (facts.latent_channels, facts.editing_channels, facts.inpainting_channels)
                if facts.in_channels not in known:
                    raise ModelFileError(
                        f"{ref.file.path}: this {facts.family} model takes {facts.in_channels} input channels,"
                        f" which is not supported (supported: {known[0]}, for editing pictures {known[1]}, for"
                        f" inpainting {known[2]})"
                    )
                self._facts[ref.file] = facts
            return self._facts[ref.file]

    def diffusion(self, ref: ModelRef) -> DiffusionModel:
        """Return the diffusion model with its LoRAs merged; sampling patches are not its business.

        Raises ModelFileError for files that are missing, damaged or not supported.
        """
        with self._lock:
            network = self._network(ref.file)
            loras = _effective(ref.loras)
            if not loras:
                return network.model(None)
            key = f"network {ref.file} {loras}"
            return network.model(self._shelf.take(key, lambda: self._patch_network(network, loras)))

    def network_entries(self, ref: ModelRef, dtype: torch.dtype | None = None) -> dict[str, Entry]:
        """Return what a file of a network with its LoRAs and merges holds, by original names.

        dtype: of what they change; None for one that says as much as the model here does.
        """
        with self._lock:
            network = self._network(ref.file)
            changes = self._plan_network(network, _effective(ref.loras))
            return network_entries(network.resident, network.names, changes, dtype)

    def clip_entries(self, ref: ClipRef, dtype: torch.dtype | None = None) -> list[ExportedClip]:
        """Return what files of a handle's text models hold, in their order; dtype as in network_entries."""
        with self._lock:
            clips, loras = self._sorted_clips(ref), _effective(ref.loras)
            return [
                ExportedClip(
                    clip.kind,
                    parameter_entries(clip.resident, self._plan_clip(clip, len(clips) > 1, loras), dtype),
                    clip_scale(clip.resident),
                )
                for clip in clips
            ]

    def text(self, ref: ClipRef) -> TextEncoder:
        """Return the text encoder of one or more files, with LoRAs merged."""
        with self._lock:
            clips = self._sorted_clips(ref)
            loras = _effective(ref.loras)
            parts = tuple(self._clip_part(clip, len(clips), loras) for clip in clips)
            return TextEncoder(parts, ref.last_layer, ref.embeddings)

    def vae(self, ref: VaeRef) -> Autoencoder:
        """Return the autoencoder of a file, or of the two files of a tiny one."""
        with self._lock:
            return self._shelf.take(f"vae {ref}", lambda: self._load_vae(ref))

    def tiny_decoder(self, file: FileRef) -> TinyDecoder:
        """Return the decoder of a tiny autoencoder, for latents in the units of models."""
        with self._lock:
            return self._shelf.take(f"tiny {file}", lambda: self._load_tiny(file))

    def controlnet(self, ref: ControlNetRef) -> ControlNet | T2IAdapter:
        """Return a ControlNet, or what acts like one.

        Raises PromptError if a union ControlNet cannot be used as the handle's types.
        """
        with self._lock:
            found = self._shelf.take(f"controlnet {ref.file}", lambda: self._load_controlnet(ref.file))
        return found.of_types(ref.types) if isinstance(found, ControlNet) else found

    def upscaler(self, ref: UpscaleRef) -> Upscaler:
        """Return an upscaler. Raises ModelFileError also if spandrel is needed for it, and not installed."""
        with self._lock:
            return self._shelf.take(f"upscaler {ref.file}", lambda: self._load_upscaler(ref.file))

    @property
    def weights_bytes(self) -> int:
        """Bytes of all resident weights, shared ones counted once; never waits for a load."""
        return self.keeper.resident_bytes

    def picture(self) -> WeightsPicture:
        """Describe the memory of the weights; holds up nothing that runs."""
        return draw_weights(self.keeper)

    def take_waited_s(self) -> float:
        """Return how long models that this thread ran waited for weights, since the last call."""
        return self.keeper.take_waited_s()

    def claim(self, claimed_bytes: int) -> int:
        """Give bytes of the device's budget to communication (see Keeper.claim)."""
        return self.keeper.claim(claimed_bytes)

    def unload_all(self) -> None:
        """Free all weights that nobody uses now, and forget their models."""
        with self._lock:
            self.keeper.free_all()
            self._shelf.clear()

    def _network(self, file: FileRef) -> LoadedNetwork:
        def load() -> tuple[LoadedNetwork, list[ResidentModel]]:
            with opened(file) as root:
                family, facts = identify(root)
                network = family.load(find_network(root), facts, self.residence)
            return network, [network.resident]

        return self._shelf.take(f"network {file}", load)

    def _sorted_clips(self, ref: ClipRef) -> list[_Clip]:
        """Return the text models of a handle in the order of their features."""
        with ExitStack() as stack:
            found = {clip.kind: clip for file in ref.files for clip in self._clips(file, stack)}
        return sorted(found.values(), key=lambda clip: "lhg".index(clip.kind))

    def _clips(self, file: FileRef, stack: ExitStack) -> list[_Clip]:
        """Return the text models of a file; it stays open for as long as files of the same handle are read."""

        def load() -> tuple[list[_Clip], list[ResidentModel]]:
            models = _clip_models(stack.enter_context(opened(file)))
            clips = [
                _Clip(
                    model.kind,
                    model.config,
                    self.residence.register(f"text {model.kind}", model.recipes(), clip_order(model.config)),
                )
                for model in models
            ]
            return clips, [clip.resident for clip in clips]

        return self._shelf.take(f"text {file}", load)

    def _clip_part(self, clip: _Clip, count: int, loras: tuple[WeightChange, ...]) -> ClipPart:
        models: tuple[ResidentModel, ...] = (clip.resident,)
        if loras:
            key = f"{clip.resident.key} {count > 1} {loras}"
            models = (*models, self._shelf.take(key, lambda: self._patch_clip(clip, count > 1, loras)))
        return ClipPart(
            clip.kind,
            clip.config,
            gather(models),
            self.keeper,
            models,
            default_stop=None if clip.kind == "l" and count == 1 else -2,
            is_hidden_normalized=clip.kind != "g" and count == 1,
        )

    def _load_vae(self, ref: VaeRef) -> tuple[Autoencoder, tuple[ResidentModel, ...]]:
        vae: Autoencoder
        with ExitStack() as stack:
            root = stack.enter_context(opened(ref.file))
            parts = find_parts(ref, root, stack)
            vae = (
                load_autoencoder(root, self.residence)
                if parts is None
                else TinyAutoencoder(parts, self.residence)
            )
        return vae, vae.residents

    def _load_tiny(self, file: FileRef) -> tuple[TinyDecoder, tuple[ResidentModel, ...]]:
        with opened(file) as root:
            decoder = load_decoder(root, self.residence)
        return decoder, decoder.residents

    def _load_controlnet(self, file: FileRef) -> tuple[ControlNet | T2IAdapter, list[ResidentModel]]:
        controlnet: ControlNet | T2IAdapter
        with opened(file) as root:
            adapter = find_adapter(root)
            if adapter is None:
                controlnet = load_controlnet(root, self.residence)
            else:
                controlnet = load_adapter(adapter, self.residence)
        return controlnet, [controlnet.resident]

    def _load_upscaler(self, file: FileRef) -> tuple[Upscaler, tuple[ResidentModel, ...]]:
        with opened(file) as root:
            upscaler = load_upscaler(root, self.residence)
        return upscaler, upscaler.residents

    def _patch_network(
        self, network: LoadedNetwork, loras: tuple[WeightChange, ...]
    ) -> tuple[ResidentModel, list[ResidentModel]]:
        changes = self._plan_network(network, loras)
        private = patch_model(network.resident, changes, self.device, variant_of(loras))
        return private, [private]

    def _patch_clip(
        self, clip: _Clip, is_pair: bool, loras: tuple[WeightChange, ...]
    ) -> tuple[ResidentModel, list[ResidentModel]]:
        changes = self._plan_clip(clip, is_pair, loras)
        private = patch_model(clip.resident, changes, self.device, variant_of(loras))
        return private, [private]

    def _plan_network(self, network: LoadedNetwork, loras: tuple[WeightChange, ...]) -> dict[str, list[Change]]:
        known, layer_names = set(network.names.values()), unet_layer_names(network.names)
        originals = {new: old for old, new in network.names.items()}
        planned: dict[str, list[Change]] = {}
        for change in loras:
            if isinstance(change, LoraRef):
                _append(planned, plan_loras((change,), known, layer_names, UNET_PREFIXES))
            elif isinstance(change.other, ModelRef):
                other = self._network(change.other.file)
                one, two = network.facts.family, other.facts.family
                if one != two:
                    raise PromptError(f"models of the families {one} and {two} cannot be merged")
                changes = self._plan_network(other, _effective(change.other.loras))
                mixed = plan_merge(change, network.resident, other.resident, changes, originals)
                _append(planned, {name: [weight] for name, weight in mixed.items()})
        return planned

    def _plan_clip(
        self, clip: _Clip, is_pair: bool, loras: tuple[WeightChange, ...]
    ) -> dict[str, list[Change]]:
        known = [name for layer in clip.resident.layers for name in layer.parameters]
        layer_names, prefixes = clip_layer_names(clip.kind, is_pair, known), clip_prefixes(clip.kind, is_pair)
        planned: dict[str, list[Change]] = {}
        for change in loras:
            if isinstance(change, LoraRef):
                _append(planned, plan_loras((change,), set(known), layer_names, prefixes))
            elif isinstance(change.other, ClipRef):
                with ExitStack() as stack:
                    others = [each for file in change.other.files for each in self._clips(file, stack)]
                alike = [each for each in others if each.kind == clip.kind]
                for other in alike[-1:]:
                    changes = self._plan_clip(other, len(others) > 1, _effective(change.other.loras))
                    mixed = plan_merge(change, clip.resident, other.resident, changes, {})
                    _append(planned, {name: [weight] for name, weight in mixed.items()})
        return planned


def _append(planned: dict[str, list[Change]], more: Mapping[str, Sequence[Change]]) -> None:
    for name, changes in more.items():
        planned.setdefault(name, []).extend(changes)


def _clip_models(root: Weights) -> list[ClipFile]:
    """Find the text models of a file. Raises ModelFileError; of a file of no known family it says only that."""
    try:
        return find_clip_models(root)
    except ModelFileError:
        identify(root)
        raise


def _effective(loras: tuple[WeightChange, ...]) -> tuple[WeightChange, ...]:
    """Leave out LoRAs of strength zero, which change nothing."""
    return tuple(lora for lora in loras if not isinstance(lora, LoraRef) or lora.strength != 0.0)


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu x {torch.get_num_threads()}"
