"""T2I-Adapters in a pool of models, and what they do to U-Nets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ControlNetRef, ModelRef
from comfyserverless.models.adapters.adapter import T2IAdapter
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.residuals import WithFeatures
from tests.support.make_tiny_models import Spec, build
from tests.unit.models.adapters.files import full_adapter, light_adapter
from tests.unit.models.files import mini_unet, write_file

UNET = {"mc": 32, "mults": (1, 2, 4, 4), "depths": (1, 1, 1, 0)}
SDXL_UNET = {"mc": 32, "mults": (1, 2, 4), "depths": (0, 1, 1), "linear": True, "adm": 1540}


def adapter_of(pool: ModelPool, folder: Path, spec: Spec) -> T2IAdapter:
    file = write_file(folder / "adapter.safetensors", build(spec, "adapter", torch.float32))
    found = pool.controlnet(ControlNetRef(file))
    assert isinstance(found, T2IAdapter)
    return found


class Unet:
    """A small U-Net of a file, on an input of its own."""

    def __init__(self, pool: ModelPool, folder: Path, structure: dict[str, Any], width: int = 8) -> None:
        tensors = build(mini_unet(**structure), "unet", torch.float32)
        self._model = pool.diffusion(ModelRef(write_file(folder / "unet.safetensors", tensors)))
        self.x, self._context = torch.ones(2, 4, 8, width), torch.ones(2, 7, 8)

    def with_features(self, features: dict[int, Tensor] | None) -> Tensor:
        width = self._model.facts.adm_width
        adm = None if width is None else torch.ones(2, width)
        added = None if features is None else WithFeatures((), features)
        return self._model.predict(self.x, torch.tensor([9.0, 9.0]), self._context, adm, added)


@pytest.mark.parametrize(
    ("spec", "unet"),
    [(full_adapter(32), UNET), (light_adapter(32), UNET), (full_adapter(32, 768), SDXL_UNET)],
    ids=["full", "light", "sdxl"],
)
@pytest.mark.parametrize("width", [8, 9])
def test_every_feature_of_an_adapter_changes_what_a_model_gives(
    tmp_path: Path, spec: Spec, unet: dict[str, Any], width: int
) -> None:
    pool = ModelPool()
    adapter = adapter_of(pool, tmp_path, spec)
    hint = adapter.prepare_hint(torch.rand(1, 30, 50, 3), width * 8, 64)
    network = Unet(pool, tmp_path, unet, width)
    residuals = adapter.residuals(network.x, torch.ones(2), torch.ones(2, 7, 8), hint)
    features = dict(zip(adapter.block_numbers, residuals, strict=True))
    plain = network.with_features(None)
    nothing = {number: torch.zeros_like(feature) for number, feature in features.items()}
    assert torch.equal(network.with_features(nothing), plain)
    for number, feature in features.items():
        changed = network.with_features({number: feature})
        assert not torch.allclose(changed, plain, rtol=1e-3), number


def test_adapter_of_another_family_is_refused(tmp_path: Path) -> None:
    features = {2: torch.zeros(2, 16, 8, 8)}
    with pytest.raises(PromptError, match="adds 16 channels where the model has 32"):
        Unet(ModelPool(), tmp_path, UNET).with_features(features)


def test_grey_adapters_see_the_mean_of_the_colours(tmp_path: Path) -> None:
    image = torch.zeros(1, 16, 16, 3)
    image[..., 0] = 0.9
    adapter = adapter_of(ModelPool(), tmp_path, full_adapter(32))
    hint = adapter.prepare_hint(image, 16, 16)
    torch.testing.assert_close(hint, torch.full((1, 1, 16, 16), 0.3))
