"""State dicts as packs rename and measure them."""

from __future__ import annotations

import torch

from comfyserverless.host.helpers import states


def test_prefixes_are_replaced_in_place_or_moved_out() -> None:
    sd = {"a.x": 1, "a.y": 2, "b.x": 3}
    assert states.state_dict_prefix_replace(sd, {"a.": "c."}) is sd
    assert sd == {"b.x": 3, "c.x": 1, "c.y": 2}
    assert states.state_dict_prefix_replace(sd, {"c.": ""}, filter_keys=True) == {"x": 1, "y": 2}
    assert sd == {"b.x": 3}


def test_keys_are_replaced_where_they_are() -> None:
    assert states.state_dict_key_replace({"a": 1, "b": 2}, {"a": "z", "q": "r"}) == {"b": 2, "z": 1}


def test_numbers_and_their_usual_type_are_counted_below_a_prefix() -> None:
    sd = {"m.a": torch.zeros(3, 2, dtype=torch.half), "m.b": torch.zeros(2), "n.c": torch.zeros(100)}
    assert states.calculate_parameters(sd, "m.") == 8
    assert states.weight_dtype(sd, "m.") == torch.half
    assert states.weight_dtype(sd) == torch.float32
    assert states.weight_dtype({}) is None
    assert states.convert_sd_to(sd, torch.double)["m.a"].dtype == torch.double


def test_names_of_diffusers_lead_to_those_of_the_original_layout() -> None:
    config = {
        "num_res_blocks": [2, 2],
        "channel_mult": [1, 2],
        "transformer_depth": [1, 1, 0, 0],
        "transformer_depth_output": [1, 1, 1, 0, 0, 0],
        "transformer_depth_middle": 1,
    }
    names = states.unet_to_diffusers(config)
    expected = {
        "conv_in.weight": "input_blocks.0.0.weight",
        "down_blocks.0.resnets.1.conv2.bias": "input_blocks.2.0.out_layers.3.bias",
        "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight": (
            "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight"
        ),
        "down_blocks.0.downsamplers.0.conv.weight": "input_blocks.3.0.op.weight",
        "mid_block.resnets.1.norm1.weight": "middle_block.2.in_layers.0.weight",
        "up_blocks.0.upsamplers.0.conv.weight": "output_blocks.2.1.conv.weight",
        "up_blocks.1.resnets.0.norm1.weight": "output_blocks.3.0.in_layers.0.weight",
        "up_blocks.1.attentions.2.proj_in.weight": "output_blocks.5.1.proj_in.weight",
    }
    assert {name: names.get(name) for name in expected} == expected
    assert "down_blocks.1.attentions.0.proj_in.weight" not in names
    assert states.unet_to_diffusers({"image_model": "flux"}) == {}
    assert ("time_embed.0.weight", "time_embedding.linear_1.weight") in states.UNET_MAP_BASIC
