"""Walk through a U-Net block by block, as ComfyUI numbers them, and call patches between.

Input blocks: 0 is the first convolution; then, level by level, each resnet with its attention, and the
downsampler. Output blocks: each resnet with its attention, and of the last one of a level the upsampler. What a
walk without patches gives has the bits of the network's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.patching.attention import Options, run_block
from comfyserverless.models.patching.calling import call
from comfyserverless.models.residuals import MIDDLE, WithFeatures


@dataclass(frozen=True, slots=True)
class UnetInputs:
    """What a U-Net runs on: x [N, C, h, w], timesteps [N], context [N, T, D], vector [N, A] or None.

    residuals: of ControlNets, input blocks in order, then the middle block; each is read where it is used. With
    features, which are added on the way down, they may be none.
    """

    x: Tensor
    timesteps: Tensor
    context: Tensor
    vector: Tensor | None = None
    residuals: Sequence[Tensor] | None = None


def run_patched(module: Any, inputs: UnetInputs, options: Options) -> Tensor:
    """Return what a UNet2DConditionModel gives, with the patches of `options` (changed as the walk goes on)."""
    return _Walk(module, inputs, options).run()


class _Walk:
    """One pass through a U-Net."""

    def __init__(self, module: Any, inputs: UnetInputs, options: Options) -> None:
        self._module = module
        self._inputs = inputs
        self._options = options
        given = inputs.residuals
        self._features = given.features if isinstance(given, WithFeatures) else {}
        self._residuals = given if given is not None and len(given) else None
        self._embedding = self._embed()

    def run(self) -> Tensor:
        options, module, residuals = self._options, self._module, self._residuals
        options["original_shape"] = list(self._inputs.x.shape)
        options["transformer_index"] = 0
        x, skips = self._encode()
        options["block"] = ("middle", 0)
        x = self._apply(_middle_block(module), x)
        if residuals is not None:
            x = _added(x, residuals[-1])
        x = self._with_feature(x, MIDDLE)
        x = self._decode(x, skips)
        output: Tensor = module.conv_out(module.conv_act(module.conv_norm_out(x)))
        return output

    def _embed(self) -> Tensor:
        module, inputs = self._module, self._inputs
        embedding: Tensor = module.time_embedding(
            module.get_time_embed(sample=inputs.x, timestep=inputs.timesteps), None
        )
        channels = module.config.block_out_channels[0]
        for patch in self._patches("emb_patch"):
            embedding = call("emb_patch", patch, embedding, channels, self._options)
        vector = module.get_class_embed(sample=inputs.x, class_labels=inputs.vector)
        return embedding if vector is None else embedding + vector

    def _encode(self) -> tuple[Tensor, list[Tensor]]:
        x, skips = self._inputs.x, []
        for number, layers in enumerate(input_blocks(self._module)):
            self._options["block"] = ("input", number)
            x = self._with_feature(self._apply(layers, x), number)
            for patch in self._patches("input_block_patch"):
                x = call("input_block_patch", patch, x, self._options)
            skips.append(x)
            for patch in self._patches("input_block_patch_after_skip"):
                x = call("input_block_patch_after_skip", patch, x, self._options)
        return x, skips

    def _decode(self, x: Tensor, skips: list[Tensor]) -> Tensor:
        residuals = self._residuals
        for number, layers in enumerate(output_blocks(self._module)):
            self._options["block"] = ("output", number)
            skip = skips.pop()
            if residuals is not None:
                skip = _added(skip, residuals[len(skips)])
            for patch in self._patches("output_block_patch"):
                x, skip = call("output_block_patch", patch, x, skip, self._options)
            size = tuple(skips[-1].shape[2:]) if skips else None
            x = self._apply(layers, torch.cat([x, skip], dim=1), size)
        return x

    def _apply(self, layers: Sequence[Any], x: Tensor, size: tuple[int, ...] | None = None) -> Tensor:
        for layer in layers:
            if hasattr(layer, "transformer_blocks"):
                x = self._transform(layer, x)
            elif hasattr(layer, "time_emb_proj"):
                x = layer(x, self._embedding)
            elif hasattr(layer, "use_conv_transpose"):
                doubled = tuple(2 * side for side in x.shape[2:])
                x = layer(x, None if size is None or size == doubled else size)
            else:
                x = layer(x)
        return x

    def _transform(self, layer: Any, x: Tensor) -> Tensor:
        _begin(layer)
        count, _, height, width = x.shape
        self._options["activations_shape"] = list(x.shape)
        hidden, inner_width = layer._operate_on_continuous_inputs(x)
        for index, block in enumerate(layer.transformer_blocks):
            _begin(block)
            self._options["block_index"] = index
            hidden = run_block(block, hidden, self._inputs.context, self._options)
        self._options["transformer_index"] += 1
        output: Tensor = layer._get_output_for_continuous_inputs(
            hidden_states=hidden,
            residual=x,
            batch_size=count,
            height=height,
            width=width,
            inner_dim=inner_width,
        )
        return output

    def _with_feature(self, x: Tensor, number: int) -> Tensor:
        if number not in self._features:
            return x
        feature = self._features[number]
        if feature.shape[1] != x.shape[1]:
            raise PromptError(
                f"this T2I-Adapter adds {feature.shape[1]} channels where the model has {x.shape[1]}:"
                " it was made for another family"
            )
        return _added(x, feature)

    def _patches(self, name: str) -> Sequence[Callable[..., Any]]:
        patches: Sequence[Callable[..., Any]] = self._options.get("patches", {}).get(name, ())
        return patches


def input_blocks(module: Any) -> Iterator[Sequence[Any]]:
    """Yield the layers of each input block in order."""
    yield (module.conv_in,)
    for block in module.down_blocks:
        yield from _pairs(block)
        for sampler in block.downsamplers or ():
            yield (sampler,)


def output_blocks(module: Any) -> Iterator[Sequence[Any]]:
    """Yield the layers of each output block in order."""
    for block in module.up_blocks:
        *pairs, last = _pairs(block)
        yield from pairs
        yield (*last, *(block.upsamplers or ()))


def _pairs(block: Any) -> list[Sequence[Any]]:
    attentions = getattr(block, "attentions", None)
    if not attentions:
        return [(resnet,) for resnet in block.resnets]
    return list(zip(block.resnets, attentions, strict=True))


def _middle_block(module: Any) -> Sequence[Any]:
    if module.mid_block is None:
        return ()
    first, *others = module.mid_block.resnets
    pairs = zip(module.mid_block.attentions, others, strict=True)
    return (first, *(layer for pair in pairs for layer in pair))


def _added(x: Tensor, residual: Tensor) -> Tensor:
    """Add what a ControlNet says; not where a patch has changed the size, since it speaks of other cells."""
    return x + residual.to(x) if residual.shape == x.shape else x


def _begin(module: Any) -> None:
    """Tell that a layer begins whose own forward is not called (see Skeleton)."""
    begin_layer = module.__dict__.get("begin_layer")
    if begin_layer is not None:
        begin_layer()
