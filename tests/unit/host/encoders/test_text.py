"""Cut texts here as the workers do, and have them encoded as they were cut."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core.values import ClipRef
from comfyserverless.host import bridge
from comfyserverless.host.encoders.text import CLIP
from comfyserverless.host.encoders.tokens import Tokenizer, plain_tokens
from comfyserverless.host.models.scratch import file_ref
from comfyserverless.models.text.chunks import tokenize


class Asked(bridge.Offline):
    """A bridge that answers with what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def ask(self, kind: str, payload: Any) -> Any:
        self.asked.append((kind, payload))
        return [torch.ones(1, 77, 4), torch.zeros(1, 4)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(bridge, "_bridge", made)
    return made


@pytest.fixture(scope="module")
def ref(tiny_models: Path) -> ClipRef:
    files = (file_ref(tiny_models / "checkpoints" / "sdxl_tiny.safetensors"),)
    return ClipRef(files, embeddings=(str(tiny_models / "embeddings"),))


def test_tokens_are_those_of_the_workers() -> None:
    text = "a (red:1.3) house " * 30
    chunks = Tokenizer(("l",), ()).tokenize_with_weights(text, return_word_ids=True)["l"]
    expected = tokenize(text, 49407, lambda name: None)
    assert [[token[:2] for token in chunk] for chunk in chunks] == [
        [(token.id, token.weight) for token in chunk] for chunk in expected
    ]
    assert [token[2] for token in chunks[0][:6]] == [0, 1, 2, 3, 3, 4]  # runs of equal weight, as the original


def test_each_text_model_has_its_padding_and_its_vectors(ref: ClipRef) -> None:
    tokens = CLIP.of(ref).tokenize("embedding:tinyxl cat")
    assert sorted(tokens) == ["g", "l"]
    assert tokens["l"][0][-1] == (49407, 1.0)
    assert tokens["g"][0][-1] == (0, 1.0)
    widths = [tokens[kind][0][1][0].shape[-1] for kind in "lg"]
    assert widths[0] != widths[1]


def test_changed_tokens_are_what_is_encoded(ref: ClipRef, asked: Asked) -> None:
    clip = CLIP.of(ref)
    tokens = {
        kind: [[(5, 2.0, 1), *chunk[1:]] for chunk in chunks] for kind, chunks in clip.tokenize("x").items()
    }
    cond = clip.encode_from_tokens_scheduled(tokens, add_dict={"width": 8})
    (kind, payload), = asked.asked  # fmt: skip
    assert kind == "run_node"
    assert payload["class_type"] == "HostEncodeTokens"
    assert payload["inputs"]["tokens"]["l"][0][0] == [5, 2.0]
    assert sorted(cond[0][1]) == ["pooled_output", "width"]
    assert clip.encode_from_tokens(tokens, return_pooled=True)[1].shape == (1, 4)
    assert sorted(clip.encode_from_tokens(tokens, return_dict=True)) == ["cond", "pooled_output"]


def test_vectors_become_tensors_and_foreign_tokens_are_named() -> None:
    plain = plain_tokens({"l": [[(torch.ones(1, 4), 1)]]})
    assert plain["l"][0][0][0].shape == (4,)
    with pytest.raises(TypeError, match="'image'"):
        plain_tokens({"l": [[({"type": "image"}, 1.0)]]})


def test_clone_has_its_own_layer(ref: ClipRef) -> None:
    clip = CLIP.of(ref)
    other = clip.clone()
    other.clip_layer(-2)
    assert (clip.layer_idx, other.layer_idx) == (None, -2)
    assert other.to_ref().last_layer == -2
    assert pickle.loads(pickle.dumps(other)).to_ref() == other.to_ref()
    assert other.patcher.is_clone(clip.patcher)
