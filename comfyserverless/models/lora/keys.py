"""Know the names under which adapter files speak of a model's layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

UNET_PREFIXES = ("lora_unet_", "lycoris_", "unet.", "diffusion_model.")
"""How names of diffusion layers start in adapter files."""

_WEIGHT = ".weight"


def unet_layer_names(names: Mapping[str, str]) -> dict[str, str]:
    """Map every name that adapters use for a layer of a U-Net to the layer's own (diffusers') name.

    names: from the tensor name in the original layout to the parameter's name.
    """
    known: dict[str, str] = {}
    for original, parameter in names.items():
        if original.endswith(_WEIGHT):
            layer = parameter.removesuffix(_WEIGHT)
            known |= dict.fromkeys(_unet_spellings(original.removesuffix(_WEIGHT), layer), layer)
    return known


def _unet_spellings(original: str, layer: str) -> Iterator[str]:
    for name in (original, layer):
        flat = name.replace(".", "_")
        yield f"lora_unet_{flat}"
        yield f"lycoris_{flat}"
    yield f"diffusion_model.{original}"
    processor = layer.replace(".to_", ".processor.to_").removesuffix(
        ".0" if layer.endswith(".to_out.0") else ""
    )
    for prefix in ("", "unet."):
        yield prefix + layer
        yield prefix + processor


def clip_prefixes(kind: str, is_pair: bool) -> tuple[str, ...]:
    """Return how names of a text model start in adapter files; the last two are followed by dotted names."""
    own = f"text_encoders.clip_{kind}.transformer."
    if is_pair and kind != "l":
        return "lora_te2_", "text_encoder_2.", own
    return "lora_te_", "lora_te1_", "text_encoder.", own


def clip_layer_names(kind: str, is_pair: bool, parameters: Iterable[str]) -> dict[str, str]:
    """Map every name that adapters use for a layer of a CLIP text model to the layer's own name.

    is_pair: the encoder has two text models, the second of which adapters call `te2`.
    """
    *flat_prefixes, dotted, own = clip_prefixes(kind, is_pair)
    known: dict[str, str] = {}
    for parameter in parameters:
        if not parameter.endswith(_WEIGHT):
            continue
        layer = parameter.removesuffix(_WEIGHT)
        inner = layer if layer == "text_projection" else f"text_model.{layer}"
        spellings = [prefix + inner.replace(".", "_") for prefix in flat_prefixes]
        known |= dict.fromkeys((*spellings, dotted + inner, own + inner), layer)
    return known
