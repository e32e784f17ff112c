"""Encoding prompts with small models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from comfyserverless.core.values import ClipRef, FileRef
from comfyserverless.models.pool import ModelPool
from tests.unit.models.files import mini_clip, mini_open_clip, write_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clip")


@pytest.fixture(scope="module")
def small(folder: Path) -> FileRef:
    return write_file(folder / "l.safetensors", mini_clip("cond_stage_model.transformer."))


@pytest.fixture(scope="module")
def pair(folder: Path) -> FileRef:
    tensors = mini_clip("conditioner.embedders.0.transformer.") | mini_open_clip(
        "conditioner.embedders.1.model.", 32
    )
    return write_file(folder / "xl.safetensors", tensors)


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool()


def test_one_model_gives_its_features_and_a_pooled_vector(pool: ModelPool, small: FileRef) -> None:
    cond, pooled = pool.text(ClipRef((small,))).encode("a cat")
    assert cond.shape == (1, 77, 8)
    assert cond.dtype is torch.float32
    assert pooled is not None
    assert torch.allclose(pooled[0], cond[0, 3], atol=1e-6), "the end mark's features"


def test_a_pair_gives_both_features_side_by_side_and_pools_the_second(pool: ModelPool, pair: FileRef) -> None:
    cond, pooled = pool.text(ClipRef((pair,))).encode("a cat")
    assert cond.shape == (1, 77, 16)
    assert pooled is not None
    assert pooled.shape == (1, 8)


def test_long_prompts_give_a_chunk_after_a_chunk(pool: ModelPool, small: FileRef) -> None:
    cond, _ = pool.text(ClipRef((small,))).encode("word " * 100)
    assert cond.shape == (1, 154, 8)


def test_other_prompts_for_each_model_are_padded_to_the_longer_one(pool: ModelPool, pair: FileRef) -> None:
    encoder = pool.text(ClipRef((pair,)))
    cond, _ = encoder.encode_parts({"l": "word " * 100, "g": "a cat"})
    assert cond.shape == (1, 154, 16)
    short, _ = encoder.encode_parts({"l": "", "g": "a cat"})
    assert torch.allclose(cond[:, :77, 8:], short[:, :, 8:], atol=1e-5)
    empty, _ = encoder.encode("")
    assert torch.allclose(cond[:, 77:, 8:], empty[:, :, 8:], atol=1e-5)


def test_a_weight_scales_the_distance_from_the_empty_prompt(pool: ModelPool, small: FileRef) -> None:
    encoder = pool.text(ClipRef((small,)))
    plain, weighted, empty = (encoder.encode(text)[0] for text in ("a cat", "a (cat:1.5)", ""))
    assert torch.allclose(weighted[0, 2], (plain[0, 2] - empty[0, 2]) * 1.5 + empty[0, 2], atol=1e-5)
    assert torch.allclose(weighted[0, 1], plain[0, 1], atol=1e-6)
    nothing = encoder.encode("a (cat:0)")[0]
    assert torch.allclose(nothing[0, 2], empty[0, 2], atol=1e-6)


def test_an_earlier_layer_changes_features_but_not_the_pooled_vector(pool: ModelPool, small: FileRef) -> None:
    last, pooled = pool.text(ClipRef((small,))).encode("a cat")
    same, _ = pool.text(ClipRef((small,), last_layer=-1)).encode("a cat")
    earlier, pooled_earlier = pool.text(ClipRef((small,), last_layer=-2)).encode("a cat")
    beyond, _ = pool.text(ClipRef((small,), last_layer=-24)).encode("a cat")
    assert torch.equal(last, same)
    assert torch.equal(last, beyond)
    assert not torch.allclose(last, earlier, atol=1e-2)
    assert pooled is not None
    assert pooled_earlier is not None
    assert torch.equal(pooled, pooled_earlier)


def test_a_textual_inversion_takes_the_place_of_words(pool: ModelPool, small: FileRef, folder: Path) -> None:
    vectors = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    save_file({"emb_params": vectors}, folder / "style.safetensors")
    encoder = pool.text(ClipRef((small,), embeddings=(str(folder),)))
    styled, _ = encoder.encode("a embedding:style cat")
    missing, _ = encoder.encode("a embedding:none cat")
    plain, _ = encoder.encode("a cat")
    assert torch.equal(missing, plain)
    assert not torch.allclose(styled[0, 2], plain[0, 2], atol=1e-2)
    assert torch.allclose(styled[0, :2], plain[0, :2], atol=1e-6), "words before it are not changed"


def test_a_textual_inversion_of_another_width_is_left_out(
    pool: ModelPool, small: FileRef, folder: Path
) -> None:
    save_file({"emb_params": torch.ones(1, 5)}, folder / "wide.safetensors")
    encoder = pool.text(ClipRef((small,), embeddings=(str(folder),)))
    assert torch.equal(encoder.encode("a embedding:wide cat")[0], encoder.encode("a cat")[0])


def test_encoding_twice_gives_equal_bits(pool: ModelPool, small: FileRef) -> None:
    encoder = pool.text(ClipRef((small,)))
    assert torch.equal(encoder.encode("a (red:1.2) cat")[0], encoder.encode("a (red:1.2) cat")[0])
