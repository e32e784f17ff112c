"""Make layers that skip their initialisation, and cast weights on the fly, as `comfy.ops` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


def cast_to(
    weight: Tensor | None,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    stream: Any = None,
    r: Any = None,
) -> Tensor | None:
    """Return a weight in another type, on another device."""
    return (
        None if weight is None else weight.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=copy)
    )


def cast_to_input(weight: Tensor, input: Tensor, non_blocking: bool = False, copy: bool = True) -> Tensor:
    """Return a weight in the type and on the device of an input."""
    return weight.to(device=input.device, dtype=input.dtype, non_blocking=non_blocking, copy=copy)


def cast_bias_weight(
    s: Any,
    input: Tensor | None = None,
    dtype: Any = None,
    device: Any = None,
    bias_dtype: Any = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return (weight, bias) of a layer as an input needs them, through its functions."""
    if input is not None:
        dtype, device = dtype or input.dtype, device or input.device
    weight, bias = cast_to(s.weight, dtype, device), cast_to(s.bias, bias_dtype or dtype, device)
    for function in getattr(s, "weight_function", ()):
        weight = function(weight)
    for function in getattr(s, "bias_function", ()) if bias is not None else ():
        bias = function(bias)
    assert weight is not None, "layers have a weight"
    return weight, bias


def uncast_bias_weight(s: Any, weight: Any, bias: Any, offload_stream: Any = None) -> None:
    """Do nothing: cast copies go by themselves."""


class CastWeightBiasOp:
    """What all layers have in common."""

    comfy_cast_weights = False
    weight_function: Any = ()
    bias_function: Any = ()


def _run_linear(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight, bias)


def _run_conv(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = layer._conv_forward(x, weight, bias)
    return result


def _run_group_norm(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.group_norm(x, layer.num_groups, weight, bias, layer.eps)


def _run_layer_norm(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)


def _layer(
    base: type[nn.Module], run: Callable[[Any, Tensor, Tensor, Tensor | None], Tensor], casts: bool
) -> type:
    """Return a layer class that keeps its memory as it is at first, and may cast its weights when it runs."""

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not (self.comfy_cast_weights or self.weight_function or self.bias_function):
            return base.forward(self, x, *args, **kwargs)
        if self.weight is None:
            return base.forward(self, x)
        return run(self, x, *cast_bias_weight(self, x))

    fields = {
        "forward": forward,
        "forward_comfy_cast_weights": lambda self, x: run(self, x, *cast_bias_weight(self, x)),
        "reset_parameters": lambda self: None,
        "comfy_cast_weights": casts,
        "__doc__": f"{base.__name__} without initialisation.",
    }
    return type(base.__name__, (base, CastWeightBiasOp), fields)


def _embedding(casts: bool) -> type:
    def forward(self: Any, x: Tensor, out_dtype: Any = None) -> Tensor:
        found = nn.Embedding.forward(self, x)
        return found if out_dtype is None else found.to(out_dtype)

    fields = {"forward": forward, "reset_parameters": lambda self: None, "comfy_cast_weights": casts}
    return type("Embedding", (nn.Embedding, CastWeightBiasOp), {**fields, "bias": None})


def _transposed(base: type[nn.Module]) -> Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]:
    function = getattr(functional, base.__name__.replace("ConvTranspose", "conv_transpose"))

    def run(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        settings = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
        result: Tensor = function(x, weight, bias, *settings)
        return result

    return run


_RUNS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]] = {
    nn.Linear: _run_linear,
    nn.Conv1d: _run_conv,
    nn.Conv2d: _run_conv,
    nn.Conv3d: _run_conv,
    nn.GroupNorm: _run_group_norm,
    nn.LayerNorm: _run_layer_norm,
    nn.ConvTranspose1d: _transposed(nn.ConvTranspose1d),
    nn.ConvTranspose2d: _transposed(nn.ConvTranspose2d),
}


class RMSNorm(nn.RMSNorm, CastWeightBiasOp):
    """Root mean square norm."""

    bias = None


def make_operations(name: str, casts: bool, base: type = object) -> type:
    """Return a class whose attributes are layer classes; casts: weights take the type of their input."""
    layers: dict[str, Any] = {each.__name__: _layer(each, run, casts) for each, run in _RUNS.items()}
    layers |= {"Embedding": _embedding(casts), "RMSNorm": RMSNorm}

    def conv_nd(dims: int, *args: Any, **kwargs: Any) -> nn.Module:
        made: nn.Module = layers[f"Conv{dims}d"](*args, **kwargs)
        return made

    return type(name, (base,), {**layers, "conv_nd": staticmethod(conv_nd)})


disable_weight_init = make_operations("disable_weight_init", casts=False)
manual_cast = make_operations("manual_cast", casts=True, base=disable_weight_init)


def pick_operations(weight_dtype: Any, compute_dtype: Any, *args: Any, **kwargs: Any) -> type:
    """Return the layers for weights of a type that is computed in another."""
    return disable_weight_init if compute_dtype in (None, weight_dtype) else manual_cast


def run_every_op() -> None:
    """Do nothing: interruption is looked for where it is cheap."""
