"""Blocks in host memory."""

from __future__ import annotations

import torch

from comfyserverless.models.resident.host import HostTier


def keep(tier: HostTier, model: str, layer: int, size_bytes: int = 10) -> bool:
    if not tier.make_room((model, layer), size_bytes):
        return False
    tier.put((model, layer), torch.zeros(size_bytes, dtype=torch.uint8))
    return True


def test_the_model_used_least_recently_leaves_whole() -> None:
    tier = HostTier(40)
    for model, layer in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        assert keep(tier, model, layer)
    assert tier.get(("a", 0)) is not None
    assert keep(tier, "c", 0)
    assert (tier.get(("b", 0)), tier.get(("b", 1))) == (None, None)
    assert tier.get(("a", 1)) is not None
    assert tier.total_bytes == 30


def test_a_model_that_does_not_fit_keeps_the_layers_that_do() -> None:
    tier = HostTier(25)
    assert [keep(tier, "a", layer) for layer in range(3)] == [True, True, False]
    assert tier.total_bytes == 20


def test_without_a_budget_nothing_is_kept() -> None:
    assert not keep(HostTier(0), "a", 0)


def test_a_forgotten_model_is_gone() -> None:
    tier = HostTier(40)
    keep(tier, "a", 0)
    tier.forget("a")
    tier.forget("a")
    keep(tier, "b", 0)
    tier.clear()
    assert tier.total_bytes == 0
