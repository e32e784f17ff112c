"""Write into the options of a model without touching those it was cloned from."""

from __future__ import annotations

from typing import Any

from comfyserverless.host.models import options
from comfyserverless.host.models.options import OptionSetters


class Settable(OptionSetters):
    """Something with options."""

    def __init__(self) -> None:
        self.model_options = options.new_options()


def call(*args: Any) -> None:
    """Stand for a function of a pack."""


def test_copy_shares_functions_and_nothing_that_can_be_added_to() -> None:
    first = Settable()
    first.set_model_attn1_patch(call)
    first.set_model_sampler_post_cfg_function(call)
    copied = options.copy_options(first.model_options)
    copied["transformer_options"]["patches"]["attn1_patch"].append(1)
    copied["sampler_post_cfg_function"].append(2)
    assert first.model_options["transformer_options"]["patches"]["attn1_patch"] == [call]
    assert first.model_options["sampler_post_cfg_function"] == [call]


def test_guidance_of_three_arguments_is_called_with_its_three_values() -> None:
    model = Settable()
    model.set_model_sampler_cfg_function(lambda cond, uncond, scale: (cond, uncond, scale), True)
    function = model.model_options["sampler_cfg_function"]
    assert function({"cond": 1, "uncond": 2, "cond_scale": 3}) == (1, 2, 3)
    assert model.model_options["disable_cfg1_optimization"] is True


def test_functions_before_guidance_are_kept_in_order() -> None:
    model = Settable()
    model.set_model_sampler_pre_cfg_function(call)
    model.set_model_sampler_pre_cfg_function(len, disable_cfg1_optimization=True)
    assert model.model_options["sampler_pre_cfg_function"] == [call, len]
    assert model.model_options["disable_cfg1_optimization"]


def test_replaced_blocks_are_named_with_and_without_the_transformers_index() -> None:
    model = Settable()
    model.set_model_attn2_replace(call, "input", 4)
    model.set_model_attn2_replace(len, "middle", 0, 1)
    replaced = model.model_options["transformer_options"]["patches_replace"]["attn2"]
    assert replaced == {("input", 4): call, ("middle", 0, 1): len}


def test_options_of_an_untouched_model_hold_nothing() -> None:
    model = Settable()
    model.model_options["transformer_options"]["patches"] = {}
    assert options.filled(model.model_options) == {}
    model.set_model_unet_function_wrapper(call)
    assert options.filled(model.model_options) == {"model_function_wrapper": call}
