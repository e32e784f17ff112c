"""Load and run latent-diffusion U-Nets on diffusers' UNet2DConditionModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.families.base import DiffusionModel, ModelFacts
from comfyserverless.models.modules import compute_dtype
from comfyserverless.models.patching.calling import Executor, wrappers_of
from comfyserverless.models.patching.unet import UnetInputs, run_patched
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.order import unet_order
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.models.resident.skeleton import Runner, steps_of
from comfyserverless.models.residuals import WithFeatures, defer
from comfyserverless.models.unet_layout import UnetLayout, read_layout, unet_names

if TYPE_CHECKING:
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

VectorCondition = Callable[[Tensor | None, int, int, Mapping[str, object]], Tensor]
"""Make the vector condition from (pooled, width_px, height_px, options)."""


class UnetModel(DiffusionModel):
    """A U-Net behind the interface that all families share."""

    def __init__(
        self,
        runner: Runner[UNet2DConditionModel],
        facts: ModelFacts,
        condition: VectorCondition | None,
    ) -> None:
        self.facts = facts
        self.device = runner.device
        self.models = runner.models
        self._runner = runner
        self._dtype = compute_dtype(self.device)
        self._condition = condition

    @torch.no_grad()
    def predict(
        self,
        x_in: Tensor,
        timesteps: Tensor,
        context: Tensor,
        adm: Tensor | None = None,
        residuals: Sequence[Tensor] | None = None,
        options: MutableMapping[str, Any] | None = None,
    ) -> Tensor:
        """Run the network once (see DiffusionModel.predict)."""
        self._check(x_in, context, adm)
        if options is not None or isinstance(residuals, WithFeatures):
            return self._predict_patched(UnetInputs(x_in, timesteps, context, adm, residuals), options or {})
        extra: dict[str, Any] = {}
        if residuals is not None:
            *blocks, middle = defer(residuals)
            extra = {"down_block_additional_residuals": blocks, "mid_block_additional_residual": middle}
        with self._runner.running() as module:
            output: Tensor = module(
                self._cast(x_in),
                timesteps.to(self.device),
                encoder_hidden_states=self._cast(context),
                class_labels=None if adm is None else self._cast(adm),
                return_dict=False,
                **extra,
            )[0]
        return output.float()

    def _predict_patched(self, inputs: UnetInputs, options: MutableMapping[str, Any]) -> Tensor:
        with self._runner.running() as module:

            def forward(
                x: Tensor,
                timesteps: Tensor,
                context: Tensor,
                y: Tensor | None = None,
                control: Sequence[Tensor] | None = None,
                transformer_options: MutableMapping[str, Any] | None = None,
                **others: Any,
            ) -> Tensor:
                given = UnetInputs(x, timesteps, context, y, control)
                return run_patched(
                    module, given, options if transformer_options is None else transformer_options
                )

            output: Tensor = Executor(
                "DIFFUSION_MODEL", forward, module, wrappers_of("diffusion_model", options)
            )(
                self._cast(inputs.x),
                inputs.timesteps.to(self.device),
                self._cast(inputs.context),
                None if inputs.vector is None else self._cast(inputs.vector),
                inputs.residuals,
                options,
            )
        return output.float()

    def adm(
        self, pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
    ) -> Tensor | None:
        """Return the vector condition (see DiffusionModel.adm)."""
        if self._condition is None:
            return None
        vector = self._condition(pooled, width_px, height_px, options)
        if vector.shape[1] != self.facts.adm_width:
            raise PromptError(
                f"this {self.facts.family} model takes a vector of {self.facts.adm_width} numbers, the"
                f" conditioning gives {vector.shape[1]}: it comes from the text encoder of another family"
            )
        return vector

    def _check(self, x_in: Tensor, context: Tensor, adm: Tensor | None) -> None:
        facts = self.facts
        if context.shape[-1] != facts.context_width:
            raise PromptError(
                f"this {facts.family} model takes text features {facts.context_width} wide, the conditioning is"
                f" {context.shape[-1]} wide: it comes from the text encoder of another family"
            )
        if x_in.shape[1] != facts.in_channels:
            raise PromptError(
                f"this {facts.family} model takes {facts.in_channels} input channels, got {x_in.shape[1]}"
            )
        if (adm is None) != (facts.adm_width is None):
            raise PromptError(
                f"this {facts.family} model takes {'no' if adm is not None else 'a'} vector condition"
            )

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self.device, dtype=self._dtype)


class LoadedUnet:
    """The U-Net of one file, shared by every model made from it."""

    def __init__(
        self,
        plain: Runner[UNet2DConditionModel],
        names: Mapping[str, str],
        facts: ModelFacts,
        condition: VectorCondition | None,
    ) -> None:
        self.names = names
        self.resident = plain.base
        self._plain = plain
        self.facts = facts
        self._condition = condition

    def model(self, private: ResidentModel | None) -> UnetModel:
        """Return a model with the layers of the file, under private ones where there are any."""
        runner = self._plain if private is None else self._plain.with_private(private)
        return UnetModel(runner, self.facts, self._condition)


def load_unet(
    weights: Weights, facts: ModelFacts, residence: Residence, condition: VectorCondition | None
) -> LoadedUnet:
    """Make a U-Net in the original layout ready to run.

    Raises ModelFileError if tensors are missing or do not fit.
    """
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

    layout = read_layout(weights)
    names = unet_names(layout, weights)
    config = unet_config(layout)
    skeleton = residence.skeletons.take("unet", config, lambda: UNet2DConditionModel(**config))
    recipes = residence.recipes(skeleton, weights, {new: old for old, new in names.items()})
    order = unet_order(skeleton.module)
    base = residence.register("unet", recipes, order)
    return LoadedUnet(Runner(residence.keeper, skeleton, base, steps_of(order)), names, facts, condition)


def unet_config(layout: UnetLayout) -> dict[str, Any]:
    """Return the arguments of UNet2DConditionModel for a layout."""
    down = tuple("CrossAttnDownBlock2D" if depth else "DownBlock2D" for depth in layout.level_depths)
    up_levels = tuple(reversed(layout.output_depths))
    up = tuple("CrossAttnUpBlock2D" if any(depths) else "UpBlock2D" for depths in up_levels)
    config = {"out_channels": layout.out_channels, "up_block_types": up, **encoder_config(layout, down)}
    if not layout.is_even:
        config["reverse_transformer_layers_per_block"] = tuple(
            depths if any(depths) else 1 for depths in up_levels
        )
    return config


def encoder_config(layout: UnetLayout, down_block_types: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments that a U-Net and its ControlNets share.

    diffusers reads the middle block's depth from the coarsest level's entry, which is unused if that level
    has no attention; its `attention_head_dim` is a number of heads.
    """
    depths: list[Any] = [
        (depths[0] if len(set(depths)) == 1 else depths) if any(depths) else 1 for depths in layout.input_depths
    ]
    if layout.level_depths[-1] == 0:
        depths[-1] = layout.middle_depth or 1
    config: dict[str, Any] = {
        "in_channels": layout.in_channels,
        "down_block_types": down_block_types,
        "block_out_channels": layout.level_channels,
        "layers_per_block": layout.blocks_per_level,
        "transformer_layers_per_block": tuple(depths),
        "cross_attention_dim": layout.context_width,
        "attention_head_dim": layout.heads(),
        "use_linear_projection": layout.is_linear,
    }
    if not layout.middle_depth:
        config["mid_block_type"] = None if layout.middle_depth is None else "UNetMidBlock2D"
    if layout.adm_width is not None:
        config |= {"class_embed_type": "projection", "projection_class_embeddings_input_dim": layout.adm_width}
    return config
