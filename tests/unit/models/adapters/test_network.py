"""What the networks of T2I-Adapters compute, against diffusers' where both mean the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.models.adapter import T2IAdapter

from comfyserverless.models.adapters.layout import find_adapter, read_adapter_layout
from comfyserverless.models.adapters.network import Adapter
from tests.support.make_tiny_models import Spec, build
from tests.unit.models.adapters.files import full_adapter, light_adapter
from tests.unit.models.files import shapes_of

CHANNELS = [8, 16, 32, 32]


def made(spec: Spec) -> Adapter:
    weights = find_adapter(shapes_of(spec))
    assert weights is not None
    module = Adapter(read_adapter_layout(weights))
    module.load_state_dict(build(spec, "adapter", torch.float32))
    return module


@pytest.mark.parametrize(
    ("spec", "kind", "config"),
    [
        (full_adapter(8), "full_adapter", {"in_channels": 1, "channels": CHANNELS}),
        (full_adapter(8, 768), "full_adapter_xl", {"channels": CHANNELS, "downscale_factor": 16}),
        (light_adapter(8), "light_adapter", {"channels": CHANNELS[:3], "num_res_blocks": 4}),
    ],
)
def test_features_are_those_of_the_library(spec: Spec, kind: str, config: dict[str, Any]) -> None:
    ours, library = made(spec), T2IAdapter(adapter_type=kind, **config)
    # Both list their parameters in the order of the computation.
    for own, other in zip(ours.parameters(), library.parameters(), strict=True):
        other.data.copy_(own.data)
    hint = torch.rand(2, config.get("in_channels", 3), 64, 128)
    with torch.no_grad():
        for feature, expected in zip(ours(hint), library(hint), strict=True):
            torch.testing.assert_close(feature, expected)


def test_odd_sides_are_rounded_up_as_in_unets() -> None:
    with torch.no_grad():
        sizes = [feature.shape[2:] for feature in made(full_adapter(8))(torch.rand(1, 1, 8 * 5, 8 * 7))]
    assert sizes == [(5, 7), (3, 4), (2, 2), (1, 1)]


def test_convolutions_halve_the_size_where_a_file_has_them() -> None:
    with torch.no_grad():
        sizes = [
            feature.shape[2:]
            for feature in made(full_adapter(8, has_convolution=True))(torch.rand(1, 1, 32, 40))
        ]
    assert sizes == [(4, 5), (2, 3), (1, 2), (1, 1)]
