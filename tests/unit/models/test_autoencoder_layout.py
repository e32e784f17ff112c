"""Autoencoders in files: where they are, how they are built, what their tensors are called."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.autoencoder_layout import autoencoder_config, find_autoencoder
from tests.support.make_tiny_models import Spec, vae_kl, vae_wan
from tests.unit.models.files import mini_unet, shapes_of


@pytest.mark.parametrize("prefix", ["", "first_stage_model.", "vae."])
def test_structure_and_widths_come_from_the_shapes(prefix: str) -> None:
    weights = find_autoencoder(shapes_of(Spec().put(prefix, vae_kl(4, ch=8, mults=(1, 2, 4), nres=1))))
    config = autoencoder_config(weights)
    assert config["block_out_channels"] == (8, 16, 32)
    assert (config["layers_per_block"], config["latent_channels"], config["use_quant_conv"]) == (1, 4, True)


def test_an_autoencoder_without_quantisation_layers_is_seen_as_such() -> None:
    config = autoencoder_config(find_autoencoder(shapes_of(vae_kl(16, ch=8, quant=False))))
    assert (config["latent_channels"], config["use_quant_conv"], config["use_post_quant_conv"]) == (
        16,
        False,
        False,
    )


def test_names_become_diffusers_and_levels_of_the_decoder_turn_around() -> None:
    names = set(find_autoencoder(shapes_of(vae_kl(4, ch=8, mults=(1, 2, 4)))))
    for name in (
        "encoder.down_blocks.1.resnets.0.conv_shortcut.weight",
        "encoder.down_blocks.0.downsamplers.0.conv.bias",
        "encoder.mid_block.attentions.0.to_out.0.weight",
        "encoder.mid_block.resnets.1.norm2.weight",
        "decoder.up_blocks.2.resnets.0.conv_shortcut.weight",
        "decoder.up_blocks.0.upsamplers.0.conv.weight",
        "decoder.conv_norm_out.bias",
        "quant_conv.weight",
    ):
        assert name in names
    assert "decoder.up_blocks.2.upsamplers.0.conv.weight" not in names


@pytest.mark.parametrize("old", [False, True], ids=["today's names", "first names"])
def test_diffusers_files_are_taken_under_their_own_names(old: bool) -> None:
    weights = find_autoencoder(shapes_of(vae_kl(4, ch=8)))
    first = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    names = {name: name for name in weights}
    if old:
        for new_layer, old_layer in first.items():
            names = {
                name: now.replace(f"attentions.0.{new_layer}.", f"attentions.0.{old_layer}.")
                for name, now in names.items()
            }
    assert set(find_autoencoder(weights.renamed(names))) == set(weights)


def test_other_autoencoders_and_other_models_are_refused() -> None:
    with pytest.raises(ModelFileError, match="holds no autoencoder"):
        find_autoencoder(shapes_of(mini_unet()))
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: holds no autoencoder"):
        find_autoencoder(shapes_of(vae_wan()))
    with pytest.raises(ModelFileError, match="of another kind"):
        find_autoencoder(shapes_of(Spec({n: s for n, s in vae_kl(4).items() if ".mid." not in n})))


@pytest.mark.parametrize(
    "name",
    ["foo", "loss.a", "encoder", "encoder.down.x.block", "decoder.up.0", "encoder.mid.attn_1.zzz.weight"],
)
def test_a_tensor_of_no_known_name_is_left_out(name: str) -> None:
    spec = vae_kl(4, ch=8)
    known = set(find_autoencoder(shapes_of(spec)))
    spec.e(name, 1)
    assert set(find_autoencoder(shapes_of(spec))) >= known


def test_a_stem_of_the_wrong_shape_is_told_with_its_file() -> None:
    spec = vae_kl(4, ch=8)
    spec["decoder.conv_in.weight"] = ((3,), *spec["decoder.conv_in.weight"][1:])
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: tensor 'decoder\.conv_in\.weight' has"):
        autoencoder_config(find_autoencoder(shapes_of(spec)))
