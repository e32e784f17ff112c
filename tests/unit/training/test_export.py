"""What is written is what was trained: files give the same numbers through the product's loaders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.training.export import save_checkpoint, save_controlnet, save_lora, save_word
from comfyserverless.training.loop import Pace
from comfyserverless.training.networks.slim_autoencoder import SlimAutoencoder
from comfyserverless.training.networks.widening import LATENT_SCALE
from comfyserverless.training.pools import make_pool
from comfyserverless.training.scenery.vocabulary import rows
from comfyserverless.training.stages.control import ControlStage
from comfyserverless.training.stages.denoiser import Drawer
from comfyserverless.training.stages.lora import LoraStage

HALF = 1e-2
"""How far fp16 files may be from the float32 networks, relative to the largest value."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stir(module: nn.Module) -> None:
    """Move every parameter, so that nothing that starts at zero stays hidden."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(1)) * 0.03)


def reference(path: Path) -> FileRef:
    info = path.stat()
    return FileRef(str(path), info.st_size, info.st_mtime_ns)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= HALF * expected.abs().max()


@pytest.fixture(scope="module")
def networks() -> tuple[Drawer, SlimAutoencoder]:
    torch.manual_seed(0)
    drawer, autoencoder = Drawer(), SlimAutoencoder()
    stir(drawer)
    stir(autoencoder)
    return drawer.eval().requires_grad_(False), autoencoder.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def checkpoint(networks: tuple[Drawer, SlimAutoencoder], tmp_path_factory: pytest.TempPathFactory) -> FileRef:
    path = tmp_path_factory.mktemp("export") / "checkpoint.safetensors"
    save_checkpoint(*networks, path)
    return reference(path)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(2, 4, 16, 8, generator=generator(2)),
        torch.tensor([3, 900]),
        torch.randn(2, 77, 64, generator=generator(3)),
    )


def test_the_denoiser_predicts_the_same(checkpoint: FileRef, networks: tuple[Drawer, SlimAutoencoder]) -> None:
    x, t, context = inputs()
    close(
        ModelPool().diffusion(ModelRef(checkpoint)).predict(x, t, context),
        networks[0].unet(x, t, context).sample,
    )


def test_the_text_encoder_reads_the_same(checkpoint: FileRef, networks: tuple[Drawer, SlimAutoencoder]) -> None:
    text = "a large red circle, blue background"
    found, _ = ModelPool().text(ClipRef((checkpoint,))).encode(text)
    close(found, networks[0].text(torch.from_numpy(rows(text))[None]))


def test_words_without_a_row_mean_nothing(checkpoint: FileRef) -> None:
    encoder = ModelPool().text(ClipRef((checkpoint,)))
    assert torch.equal(encoder.encode("zebra crossing")[0], encoder.encode("quantum physics")[0])


def test_the_wide_autoencoder_does_what_the_slim_one_does(
    checkpoint: FileRef, networks: tuple[Drawer, SlimAutoencoder]
) -> None:
    vae, slim = ModelPool().vae(VaeRef(checkpoint)), networks[1]
    latents = torch.randn(1, 4, 6, 9, generator=generator(4))
    drawn = ((slim.decoder(latents) + 1) / 2).clamp(0, 1).movedim(1, -1)
    close(vae.decode(latents / LATENT_SCALE), drawn)
    pixels = torch.rand(1, 64, 48, 3, generator=generator(5))
    means = slim.encoder(pixels.movedim(-1, 1) * 2 - 1)
    difference = vae.encode(pixels) * LATENT_SCALE - means
    assert difference.abs().max() < 0.2, "a latent is drawn close to its mean"


def test_the_token_table_is_small(checkpoint: FileRef) -> None:
    assert checkpoint.size_bytes < 11_000_000


def test_a_lora_adds_what_it_learnt(networks: tuple[Drawer, SlimAutoencoder], tmp_path: Path) -> None:
    torch.manual_seed(0)
    drawer, autoencoder = Drawer(), SlimAutoencoder()
    drawer.load_state_dict(networks[0].state_dict())
    save_checkpoint(drawer, autoencoder, base := tmp_path / "base.safetensors")
    x, t, context = inputs()
    plain = drawer.unet(x, t, context).sample
    stage = LoraStage(Pace(1, 1e-3), drawer, make_pool(np.random.default_rng(0), (64, 64), 2), 1)
    assert torch.equal(drawer.unet(x, t, context).sample, plain), "an untrained LoRA changes nothing"
    with torch.no_grad():
        for _, up in stage.pairs().values():
            up.normal_(std=0.1, generator=generator(6))
    save_lora(stage.pairs(), file := tmp_path / "lora.safetensors")
    changed = drawer.unet(x, t, context).sample
    assert (changed - plain).abs().max() > 5 * HALF * plain.abs().max()
    ref = ModelRef(reference(base), (LoraRef(reference(file), 1.0),))
    close(ModelPool().diffusion(ref).predict(x, t, context), changed)


def test_a_controlnet_adds_what_it_learnt(
    checkpoint: FileRef, networks: tuple[Drawer, SlimAutoencoder], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    pools = {(64, 64): make_pool(rng, (64, 64), 2, keeps_pictures=True)}
    stage = ControlStage(Pace(1, 1e-3), networks[0], pools, 1)
    stir(stage.module)
    save_controlnet(stage.module, file := tmp_path / "control.safetensors")
    x, t, context = inputs()
    hint = torch.rand(2, 3, 128, 64, generator=generator(7))
    down, middle = stage.module(x, t, context, controlnet_cond=hint, return_dict=False)
    found = ModelPool().controlnet(ControlNetRef(reference(file))).residuals(x, t, context, hint)
    for residual, expected in zip(found, (*down, middle), strict=True):
        close(residual, expected)


def test_a_word_is_found_by_its_name(checkpoint: FileRef, tmp_path: Path) -> None:
    save_word(torch.ones(2, 64), tmp_path / "shine.safetensors")
    encoder = ModelPool().text(ClipRef((checkpoint,), embeddings=(str(tmp_path),)))
    assert not torch.equal(encoder.encode("embedding:shine")[0], encoder.encode("embedding:other")[0])


def test_other_users_may_read_what_is_written(tmp_path: Path) -> None:
    save_word(torch.ones(2, 64), path := tmp_path / "shine.safetensors")
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_is_not_finite_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="not finite"):
        save_word(torch.tensor([[float("nan")]]), tmp_path / "bad.safetensors")
    assert list(tmp_path.iterdir()) == []
