"""List the layers of the networks that are run, in the order in which they compute.

An entry names the modules of one layer; the first one is where the layer begins. The first layer takes every
parameter that no entry names. A transformer of several blocks is divided: most weights of large models are
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Order = tuple[tuple[str, ...], ...]

_FIRST: tuple[tuple[str, ...], ...] = ((),)


def unet_order(module: Any) -> Order:
    """Return the layers of a UNet2DConditionModel: embeddings, blocks, head."""
    return (*_FIRST, *_encoder(module), *_up_blocks(module, ""), ("conv_norm_out", "conv_out"))


def controlnet_order(module: Any) -> Order:
    """Return the layers of a ControlNetModel; its output convolutions are one layer."""
    return (
        *_FIRST,
        *_encoder(module),
        ("controlnet_down_blocks.0", "controlnet_down_blocks", "controlnet_mid_block"),
    )


def vae_encoder_order(module: Any) -> Order:
    """Return the layers of an AutoencoderKL that encode."""
    encoder = module.encoder
    blocks = (*_down_blocks(encoder, "encoder."), *_middle(encoder.mid_block, "encoder.mid_block"))
    return (*_FIRST, *blocks, ("encoder.conv_norm_out", "encoder.conv_out", "quant_conv"))


def vae_decoder_order(module: Any) -> Order:
    """Return the layers of an AutoencoderKL that decode."""
    decoder = module.decoder
    blocks = (*_middle(decoder.mid_block, "decoder.mid_block"), *_up_blocks(decoder, "decoder."))
    return (*_FIRST, *blocks, ("decoder.conv_norm_out", "decoder.conv_out"))


def _encoder(module: Any) -> Iterator[tuple[str, ...]]:
    yield from _down_blocks(module, "")
    yield from _middle(module.mid_block, "mid_block")


def _down_blocks(module: Any, prefix: str) -> Iterator[tuple[str, ...]]:
    for number, block in enumerate(module.down_blocks):
        yield from _block(block, f"{prefix}down_blocks.{number}", "downsamplers")


def _up_blocks(module: Any, prefix: str) -> Iterator[tuple[str, ...]]:
    for number, block in enumerate(module.up_blocks):
        yield from _block(block, f"{prefix}up_blocks.{number}", "upsamplers")


def _block(block: Any, name: str, samplers: str) -> Iterator[tuple[str, ...]]:
    attentions = getattr(block, "attentions", None) or ()
    for at in range(len(block.resnets)):
        yield (f"{name}.resnets.{at}",)
        if at < len(attentions):
            yield from _attention(attentions[at], f"{name}.attentions.{at}")
    for at in range(len(getattr(block, samplers) or ())):
        yield (f"{name}.{samplers}.{at}",)


def _middle(block: Any, name: str) -> Iterator[tuple[str, ...]]:
    if block is None:
        return
    yield (f"{name}.resnets.0",)
    for at, attention in enumerate(block.attentions):
        yield from _attention(attention, f"{name}.attentions.{at}")
        yield (f"{name}.resnets.{at + 1}",)


def _attention(attention: Any, name: str) -> Iterator[tuple[str, ...]]:
    yield (name,)
    blocks = getattr(attention, "transformer_blocks", ())
    if len(blocks) > 1:
        for at in range(len(blocks)):
            yield (f"{name}.transformer_blocks.{at}",)
        yield (f"{name}.proj_out",)
