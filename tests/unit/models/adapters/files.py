"""Make T2I-Adapter files of any width."""

from __future__ import annotations

from tests.support.make_tiny_models import Spec


def full_adapter(width: int = 320, entry: int = 64, *, has_convolution: bool = False) -> Spec:
    """Return the tensors of a full adapter; entry: channels that it takes, 256 or 768 for SDXL."""
    spec, before = Spec(), width
    spec.conv("conv_in", width, entry, 3)
    for stage, times in enumerate((1, 2, 4, 4)):
        channels = width * times
        for at in (2 * stage, 2 * stage + 1):
            if at == 2 * stage and before != channels:
                spec.conv(f"body.{at}.in_conv", channels, before, 1)
            if at == 2 * stage and stage and has_convolution:
                spec.conv(f"body.{at}.down_opt.op", before, before, 3)
            spec.conv(f"body.{at}.block1", channels, channels, 3)
            spec.conv(f"body.{at}.block2", channels, channels, 1)
        before = channels
    return spec


def light_adapter(width: int = 320) -> Spec:
    """Return the tensors of a light adapter."""
    spec, before = Spec(), 192
    for stage, times in enumerate((1, 2, 4, 4)):
        channels, inner = width * times, width * times // 4
        spec.conv(f"body.{stage}.in_conv", inner, before, 1)
        for at in range(4):
            spec.conv(f"body.{stage}.body.{at}.block1", inner, inner, 3)
            spec.conv(f"body.{stage}.body.{at}.block2", inner, inner, 3)
        spec.conv(f"body.{stage}.out_conv", channels, inner, 1)
        before = channels
    return spec
