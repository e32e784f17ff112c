"""The stand-in for a network: facts and weights of its file, no layers."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.core.values import FileRef
from comfyserverless.host.models import weights
from comfyserverless.host.models.network import RemoteNetwork

TENSORS = {"out.weight": torch.zeros(2, 3), "out.bias": torch.zeros(2)}


def test_packs_count_weights_and_ask_for_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        weights, "network_weights", lambda file, prefix: {prefix + n: t for n, t in TENSORS.items()}
    )
    network = RemoteNetwork(FileRef("x.safetensors"))
    assert sum(each.numel() for each in network.parameters()) == 8
    assert next(network.parameters()).dtype == torch.float32
    assert [name for name, _ in network.named_parameters()] == list(network.state_dict()) == list(TENSORS)
    with pytest.raises(AttributeError, match="the network's layers are on the workers"):
        _ = network.input_blocks
