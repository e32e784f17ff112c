"""Hold a model's `model_options`, which is the real extension API of sampling packs: a dict of plain dicts.

Its keys and the way functions in it are called are ComfyUI's; the workers honour them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Options = dict[str, Any]
_CFG_ARGUMENTS = 3


def new_options() -> Options:
    """Return the options of an untouched model."""
    return {"transformer_options": {}}


def copy_options(value: Any) -> Any:
    """Copy dicts and lists all the way down; functions and other objects are shared."""
    if type(value) is dict:
        return {key: copy_options(item) for key, item in value.items()}
    return [copy_options(item) for item in value] if type(value) is list else value


def filled(value: Any) -> Any:
    """Return options without what is empty: what differs from an untouched model."""
    if type(value) is not dict:
        return value
    kept = {key: filled(item) for key, item in value.items()}
    return {key: item for key, item in kept.items() if not (type(item) in (dict, list) and not item)}


def to_options(model_options: Mapping[str, Any]) -> Options:
    """Return the transformer options, copied up to where a pack changes them."""
    options: Options = dict(model_options.get("transformer_options") or {})
    return options


def set_model_options_patch_replace(
    model_options: Options,
    patch: Any,
    name: str,
    block_name: str,
    number: int,
    transformer_index: int | None = None,
) -> Options:
    """Replace a function inside the network; the options given are changed and returned."""
    options = to_options(model_options)
    replaced = dict(options.get("patches_replace") or {})
    of_name = dict(replaced.get(name) or {})
    block = (block_name, number) if transformer_index is None else (block_name, number, transformer_index)
    of_name[block] = patch
    replaced[name] = of_name
    options["patches_replace"] = replaced
    model_options["transformer_options"] = options
    return model_options


def set_model_options_post_cfg_function(
    model_options: Options, post_cfg_function: Callable[..., Any], disable_cfg1_optimization: bool = False
) -> Options:
    """Add a function that sees the guided estimate."""
    functions = model_options.get("sampler_post_cfg_function") or []
    model_options["sampler_post_cfg_function"] = [*functions, post_cfg_function]
    if disable_cfg1_optimization:
        model_options["disable_cfg1_optimization"] = True
    return model_options


def set_model_options_pre_cfg_function(
    model_options: Options, pre_cfg_function: Callable[..., Any], disable_cfg1_optimization: bool = False
) -> Options:
    """Add a function that sees the estimates of all sides before they are put together."""
    functions = model_options.get("sampler_pre_cfg_function") or []
    model_options["sampler_pre_cfg_function"] = [*functions, pre_cfg_function]
    if disable_cfg1_optimization:
        model_options["disable_cfg1_optimization"] = True
    return model_options


def create_model_options_clone(orig_model_options: Options) -> Options:
    """Copy options."""
    copied: Options = copy_options(orig_model_options)
    return copied


class OptionSetters:
    """The methods of a model that write into its options."""

    model_options: Options

    def set_model_sampler_cfg_function(
        self, sampler_cfg_function: Callable[..., Any], disable_cfg1_optimization: bool = False
    ) -> None:
        """Replace classifier-free guidance; a function of three arguments gets (cond, uncond, scale)."""
        function = sampler_cfg_function
        if len(inspect.signature(sampler_cfg_function).parameters) == _CFG_ARGUMENTS:
            function = _ThreeArguments(sampler_cfg_function)
        self.model_options["sampler_cfg_function"] = function
        if disable_cfg1_optimization:
            self.model_options["disable_cfg1_optimization"] = True

    def set_model_sampler_post_cfg_function(
        self, post_cfg_function: Callable[..., Any], disable_cfg1_optimization: bool = False
    ) -> None:
        """Add a function after guidance."""
        set_model_options_post_cfg_function(self.model_options, post_cfg_function, disable_cfg1_optimization)

    def set_model_sampler_pre_cfg_function(
        self, pre_cfg_function: Callable[..., Any], disable_cfg1_optimization: bool = False
    ) -> None:
        """Add a function before guidance."""
        set_model_options_pre_cfg_function(self.model_options, pre_cfg_function, disable_cfg1_optimization)

    def set_model_sampler_calc_cond_batch_function(self, sampler_calc_cond_batch_function: Any) -> None:
        """Replace the evaluation of conditionings."""
        self.model_options["sampler_calc_cond_batch_function"] = sampler_calc_cond_batch_function

    def set_model_unet_function_wrapper(self, unet_wrapper_function: Callable[..., Any]) -> None:
        """Set the function around each call of the network."""
        self.model_options["model_function_wrapper"] = unet_wrapper_function

    def set_model_denoise_mask_function(self, denoise_mask_function: Callable[..., Any]) -> None:
        """Set the function that changes the mask of each evaluation."""
        self.model_options["denoise_mask_function"] = denoise_mask_function

    def set_model_patch(self, patch: Any, name: str) -> None:
        """Add a patch by name."""
        options = self.model_options["transformer_options"]
        patches = options.setdefault("patches", {})
        patches[name] = [*patches.get(name, ()), patch]

    def set_model_patch_replace(
        self, patch: Any, name: str, block_name: str, number: int, transformer_index: int | None = None
    ) -> None:
        """Replace the function of a block."""
        set_model_options_patch_replace(self.model_options, patch, name, block_name, number, transformer_index)

    def set_model_attn1_patch(self, patch: Any) -> None:
        """Change q, k and v of self-attention."""
        self.set_model_patch(patch, "attn1_patch")

    def set_model_attn2_patch(self, patch: Any) -> None:
        """Change q, k and v of cross-attention."""
        self.set_model_patch(patch, "attn2_patch")

    def set_model_attn1_output_patch(self, patch: Any) -> None:
        """Change the result of self-attention."""
        self.set_model_patch(patch, "attn1_output_patch")

    def set_model_attn2_output_patch(self, patch: Any) -> None:
        """Change the result of cross-attention."""
        self.set_model_patch(patch, "attn2_output_patch")

    def set_model_attn1_replace(
        self, patch: Any, block_name: str, number: int, transformer_index: int | None = None
    ) -> None:
        """Replace self-attention of a block."""
        self.set_model_patch_replace(patch, "attn1", block_name, number, transformer_index)

    def set_model_attn2_replace(
        self, patch: Any, block_name: str, number: int, transformer_index: int | None = None
    ) -> None:
        """Replace cross-attention of a block."""
        self.set_model_patch_replace(patch, "attn2", block_name, number, transformer_index)

    def set_model_input_block_patch(self, patch: Any) -> None:
        """Change what input blocks give."""
        self.set_model_patch(patch, "input_block_patch")

    def set_model_input_block_patch_after_skip(self, patch: Any) -> None:
        """Change what input blocks give, after it was kept for the output blocks."""
        self.set_model_patch(patch, "input_block_patch_after_skip")

    def set_model_output_block_patch(self, patch: Any) -> None:
        """Change what output blocks get."""
        self.set_model_patch(patch, "output_block_patch")

    def set_model_middle_block_patch(self, patch: Any) -> None:
        """Change what the middle block gives."""
        self.set_model_patch(patch, "middle_block_patch")

    def set_model_middle_block_after_patch(self, patch: Any) -> None:
        """Change what the middle block gives, after a ControlNet."""
        self.set_model_patch(patch, "middle_block_after_patch")

    def set_model_emb_patch(self, patch: Any) -> None:
        """Change the embedding of the timestep."""
        self.set_model_patch(patch, "emb_patch")

    def set_model_forward_timestep_embed_patch(self, patch: Any) -> None:
        """Add a layer kind to the network's loop."""
        self.set_model_patch(patch, "forward_timestep_embed_patch")

    def set_model_double_block_patch(self, patch: Any) -> None:
        """Change what double blocks of transformers give."""
        self.set_model_patch(patch, "double_block")

    def set_model_post_input_patch(self, patch: Any) -> None:
        """Change what a transformer's input layers give."""
        self.set_model_patch(patch, "post_input")

    def set_model_rope_options(
        self, scale_x: float, shift_x: float, scale_y: float, shift_y: float, **more: Any
    ) -> None:
        """Scale and shift positions of transformers."""
        options = {"scale_x": scale_x, "shift_x": shift_x, "scale_y": scale_y, "shift_y": shift_y, **more}
        self.model_options["transformer_options"]["rope_options"] = options

    def set_model_compute_dtype(self, dtype: Any) -> None:
        """Note the type to compute in."""
        self.model_options["compute_dtype"] = dtype


class _ThreeArguments:
    """Call a function (cond, uncond, scale) as the newer form asks."""

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self.function = function

    def __call__(self, args: Mapping[str, Any]) -> Any:
        return self.function(args["cond"], args["uncond"], args["cond_scale"])
