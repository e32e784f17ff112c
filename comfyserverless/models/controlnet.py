"""Load and run ControlNets (Zhang et al. 2023) of the U-Net families on diffusers' ControlNetModel.

Files come in the original layout (with or without `control_model.`) or in diffusers' layout. Union ControlNets
have a network of their own, and a type to be used as.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import UNION_TYPES
from comfyserverless.models.diffusers_names import has_diffusers_names, with_original_names
from comfyserverless.models.modules import compute_dtype
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.order import controlnet_order
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner, steps_of
from comfyserverless.models.unet import encoder_config
from comfyserverless.models.unet_layout import UnetLayout, read_layout, unet_names
from comfyserverless.models.unions.layout import is_union, is_union_name, union_config

if TYPE_CHECKING:
    from diffusers.models.controlnets.controlnet import ControlNetModel

_PREFIXES = ("control_model.", "")
_FOREIGN = {"lora_controlnet": "a Control-LoRA", "difference": "the difference of a ControlNet to a model"}
"""Tensors that tell relatives of ControlNets apart, which would otherwise load and give wrong pictures."""
_HINT_LAST = 14
_POOLED_SUFFIXES = ("_shuffle", "_shuffle_fp16")
"""File names of the ControlNets whose residuals are averaged over the picture; the tensors do not tell."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What is known of a ControlNet's file.

    path: for messages; type_count: of a union ControlNet, None for other ones.
    """

    layout: UnetLayout
    path: str
    residual_count: int
    type_count: int | None


class ControlNet:
    """A ControlNet on its device.

    residual_count: length of what `residuals` returns; types: how a union ControlNet is used, empty for
    unknown and in other ones.
    """

    def __init__(
        self, runner: Runner[ControlNetModel], structure: Structure, types: tuple[int, ...] = ()
    ) -> None:
        self.residual_count = structure.residual_count
        self.device = runner.device
        self.resident = runner.base
        self.types = types
        self._dtype = compute_dtype(self.device)
        self._runner = runner
        self._structure = structure

    def of_types(self, types: tuple[int, ...]) -> ControlNet:
        """Return this ControlNet, used as one of these types; only a union ControlNet takes notice of them.

        Raises PromptError for more than one type, and for one that the file does not have.
        """
        count = self._structure.type_count
        if count is None or types == self.types:
            return self
        if len(types) > 1:
            raise PromptError(
                f"{self._structure.path}: a union ControlNet is used as one type at a time, not as {len(types)}"
            )
        unknown = [_type_name(number) for number in types if not 0 <= number < count]
        if unknown:
            raise PromptError(
                f"{self._structure.path}: this union ControlNet has no type {unknown[0]!r}, but {count} types:"
                f" {', '.join(_type_name(number) for number in range(count))}"
            )
        return ControlNet(self._runner, self._structure, types)

    @torch.no_grad()
    def residuals(
        self, x_in: Tensor, timesteps: Tensor, context: Tensor, hint: Tensor, adm: Tensor | None = None
    ) -> list[Tensor]:
        """Return what this ControlNet adds to a U-Net, at strength 1: input blocks in order, then the middle.

        x_in: [N, C, h, w] scaled for the network; timesteps: [N]; context: [N, T, D]; hint:
        [1 or N, 3, h * 8, w * 8] in 0..1; adm: [N, A] for families with a vector condition. Returns
        float32 tensors [N, ...]. Raises PromptError when the widths belong to another family.
        """
        self._check(x_in, context, adm)
        takes_vector = self._structure.layout.adm_width is not None
        typed = {} if self._structure.type_count is None else {"control_types": self.types}
        with self._runner.running() as module:
            blocks, middle = module(
                self._cast(x_in),
                timesteps.to(self.device),
                encoder_hidden_states=self._cast(context),
                controlnet_cond=self._cast(hint),
                class_labels=self._cast(adm) if takes_vector and adm is not None else None,
                return_dict=False,
                **typed,
            )
        return [residual.float() for residual in (*blocks, middle)]

    def prepare_hint(self, image: Tensor, width_px: int, height_px: int) -> Tensor:
        """Return an IMAGE [B, H, W, C] as a hint [B, 3, height_px, width_px] (see fit_hint)."""
        return fit_hint(image, width_px, height_px)

    def _check(self, x_in: Tensor, context: Tensor, adm: Tensor | None) -> None:
        layout, path = self._structure.layout, self._structure.path
        wanted, given = (layout.context_width, layout.in_channels), (context.shape[-1], x_in.shape[1])
        if wanted != given:
            raise PromptError(
                f"{path}: this ControlNet takes (text width, channels) {wanted}, the model has {given}:"
                " it was made for another family"
            )
        if layout.adm_width is not None and (adm is None or adm.shape[1] != layout.adm_width):
            raise PromptError(
                f"{path}: this ControlNet takes a vector condition that the model does not have:"
                " use it with SDXL models"
            )

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self.device, dtype=self._dtype)


def fit_hint(image: Tensor, width_px: int, height_px: int) -> Tensor:
    """Crop a picture around its centre to the wanted aspect and resize it to nearest pixels.

    image: [B, H, W, 3 or more]. Returns [B, 3, height_px, width_px].
    """
    hint = image[..., :3].movedim(-1, 1)
    height, width = hint.shape[2:]
    wanted, present = width_px / height_px, width / height
    cut_x = round((width - width * (wanted / present)) / 2) if present > wanted else 0
    cut_y = round((height - height * (present / wanted)) / 2) if present < wanted else 0
    cut_x, cut_y = min(cut_x, (width - 1) // 2), min(cut_y, (height - 1) // 2)  # something must be left
    cropped = hint.narrow(2, cut_y, height - 2 * cut_y).narrow(3, cut_x, width - 2 * cut_x)
    return F.interpolate(cropped, size=(height_px, width_px), mode="nearest-exact")


def load_controlnet(root: Weights, residence: Residence) -> ControlNet:
    """Make a ControlNet ready to run. Raises ModelFileError for other files, naming what is supported."""
    weights, names = _find(root)
    layout = read_layout(weights)
    config = controlnet_config(weights, layout, root.path)
    skeleton = residence.skeletons.take("controlnet", config, lambda: _make_network(config))
    recipes = residence.recipes(skeleton, weights, {new: old for old, new in names.items()})
    order = controlnet_order(skeleton.module)
    base = residence.register("controlnet", recipes, order)
    runner = Runner(residence.keeper, skeleton, base, steps_of(order))
    count = len(skeleton.module.controlnet_down_blocks) + 1
    return ControlNet(runner, Structure(layout, root.path, count, config.get("num_control_type")))


def _make_network(config: dict[str, Any]) -> Any:
    """Make the module of a configuration; its class is imported with the first file, as that takes seconds."""
    if "num_control_type" in config:
        from comfyserverless.models.unions.network import UnionNetwork

        return UnionNetwork(**config)
    from diffusers.models.controlnets.controlnet import ControlNetModel

    return ControlNetModel(**config)


def _find(root: Weights) -> tuple[Weights, dict[str, str]]:
    """Return the ControlNet in the original naming, and the map from there to diffusers' names."""
    foreign = next((kind for name, kind in _FOREIGN.items() if name in root), None)
    if foreign is not None:
        raise ModelFileError(
            f"{root.path}: is {foreign}, which is not supported (supported: plain and union ControlNets)"
        )
    candidates = (
        [with_original_names(root)]
        if has_diffusers_names(root)
        else [root.below(prefix) for prefix in _PREFIXES]
    )
    for part in candidates:
        if "zero_convs.0.0.weight" in part and "input_hint_block.0.weight" in part:
            return part, controlnet_names(part)
    raise ModelFileError(
        f"{root.path}: is no supported ControlNet (supported: ControlNets of SD1.5, SD2 and SDXL)"
    )


def controlnet_names(weights: Weights) -> dict[str, str]:
    """Map each tensor name of a ControlNet in the original layout to its name in diffusers."""
    names = unet_names(read_layout(weights), weights)
    for name in weights:
        root, _, rest = name.partition(".")
        number, leaf = rest.partition(".")[0], name.rpartition(".")[2]
        if root == "zero_convs":
            names[name] = f"controlnet_down_blocks.{number}.{leaf}"
        elif is_union_name(name):
            names[name] = name
        elif root == "input_hint_block" and number.isdecimal():
            names[name] = f"controlnet_cond_embedding.{_hint_name(int(number))}.{leaf}"
    return names


def _hint_name(number: int) -> str:
    if number == 0:
        return "conv_in"
    return "conv_out" if number == _HINT_LAST else f"blocks.{number // 2 - 1}"


def controlnet_config(weights: Weights, layout: UnetLayout, path: str) -> dict[str, Any]:
    """Return the arguments of ControlNetModel, or of a UnionNetwork for a union ControlNet.

    path: tells the ones that average their residuals. Raises ModelFileError for a union ControlNet whose widths
    do not fit.
    """
    down = tuple("CrossAttnDownBlock2D" if depth else "DownBlock2D" for depth in layout.level_depths)
    stem = os.path.splitext(os.path.basename(path))[0]
    return {
        **encoder_config(layout, down),
        "conditioning_channels": weights.length("input_hint_block.0.weight", 1),
        "conditioning_embedding_out_channels": tuple(
            weights.length(f"input_hint_block.{number}.weight", 0) for number in range(0, _HINT_LAST, 4)
        ),
        "global_pool_conditions": stem.endswith(_POOLED_SUFFIXES),
        **(union_config(weights, layout) if is_union(weights) else {}),
    }


def _type_name(number: int) -> str:
    return UNION_TYPES[number] if 0 <= number < len(UNION_TYPES) else str(number)
