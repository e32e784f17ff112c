"""Tiny autoencoders (TAESD): their files, against a plain computation, and the units of a graph's latents."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import FileRef, VaeRef
from comfyserverless.models.pool import ModelPool
from tests.support.tiny_autoencoders import (
    Tensors,
    decode_by_hand,
    decoder_tensors,
    encode_by_hand,
    encoder_tensors,
    write_tensors,
)

_TOLERANCE = 1e-5
"""float32 sums in another order."""


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9))


def file(folder: Path, name: str, tensors: Tensors) -> FileRef:
    return FileRef(str(write_tensors(folder / name, tensors)))


@pytest.mark.parametrize(("name", "channels"), [("d.safetensors", 4), ("d.pth", 16)])
def test_decoder_gives_what_a_plain_computation_gives(tmp_path: Path, name: str, channels: int) -> None:
    tensors, latents = decoder_tensors(channels), 2 * random(2, channels, 3, 5)
    decoded = ModelPool().tiny_decoder(file(tmp_path, name, tensors)).decode(latents)
    assert decoded.shape == (2, 3, 24, 40)
    assert torch.allclose(decoded, decode_by_hand(tensors, latents), atol=_TOLERANCE)
    assert decoded.std() > 0.05, "the numbers say something"


@pytest.mark.parametrize(
    ("tiny", "channels", "scale", "shift"),
    [
        ("taesd", 4, 0.18215, 0.0),
        ("taesdxl", 4, 0.13025, 0.0),
        ("taesd3", 16, 1.5305, 0.0609),
        ("taef1", 16, 0.3611, 0.1159),
    ],
)
def test_latents_of_a_graph_have_the_units_of_the_family(
    tmp_path: Path, tiny: str, channels: int, scale: float, shift: float
) -> None:
    encoder, decoder = encoder_tensors(channels), decoder_tensors(channels)
    files = [file(tmp_path, f"{name}.safetensors", one) for name, one in (("d", decoder), ("e", encoder))]
    vae = ModelPool().vae(VaeRef(*files, tiny))
    assert (vae.latent_channels, vae.downscale_px) == (channels, 8)

    samples = random(1, channels, 2, 3) / scale
    expected = decode_by_hand(decoder, (samples - shift) * scale).clamp(0, 1).movedim(1, -1)
    assert torch.allclose(vae.decode(samples), expected, atol=_TOLERANCE)

    pictures = torch.rand(2, 16, 24, 3, generator=torch.Generator().manual_seed(1))
    encoded = encode_by_hand(encoder, pictures.movedim(-1, 1)) / scale + shift
    assert torch.allclose(vae.encode(pictures), encoded, atol=_TOLERANCE / scale)


def test_one_file_may_hold_both_networks_and_their_units(tmp_path: Path) -> None:
    halves = {"encoder": encoder_tensors(), "decoder": decoder_tensors()}
    both = {f"taesd_{half}.{name}": one for half, part in halves.items() for name, one in part.items()}
    units = {"vae_scale": torch.tensor(0.5), "vae_shift": torch.tensor(0.25)}
    samples = random(1, 4, 2, 2)
    with_units = ModelPool().vae(VaeRef(file(tmp_path, "u.safetensors", {**both, **units})))
    expected = decode_by_hand(halves["decoder"], (samples - 0.25) * 0.5)
    assert torch.allclose(with_units.decode_part(samples), expected * 2 - 1, atol=_TOLERANCE)
    inside = {f"first_stage_model.{name}": one for name, one in both.items()}
    for name, tensors in (("p.safetensors", both), ("checkpoint.safetensors", inside)):
        plain = ModelPool().vae(VaeRef(file(tmp_path, name, tensors)))
        assert torch.allclose(
            plain.decode_part(samples), decode_by_hand(halves["decoder"], samples) * 2 - 1, atol=_TOLERANCE
        )


def test_weights_count_as_all_others_and_leave_when_they_are_not_used(tmp_path: Path) -> None:
    pool, tensors = ModelPool(), decoder_tensors()
    pool.tiny_decoder(file(tmp_path, "d.safetensors", tensors)).decode(random(1, 4, 2, 2))
    assert pool.weights_bytes >= sum(each.numel() * 4 for each in tensors.values())
    pool.unload_all()
    assert pool.weights_bytes == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"19.weight": None}, "holds no TAESD decoder"),
        ({"8.conv.2.bias": None}, r"lacks 1 tensors of Sequential: 8\.conv\.2\.bias"),
        ({"8.conv.2.bias": torch.zeros(3)}, r"8\.conv\.2\.bias has the shape \[3\]"),
        ({"1.weight": torch.zeros(4)}, "sides are missing"),
    ],
)
def test_broken_decoder_is_a_file_error_that_names_it(
    tmp_path: Path, change: dict[str, torch.Tensor | None], problem: str
) -> None:
    changed = {**decoder_tensors(), **change}
    tensors = {name: tensor for name, tensor in changed.items() if tensor is not None}
    with pytest.raises(ModelFileError, match=rf"d\.safetensors.*{problem}"):
        ModelPool().tiny_decoder(file(tmp_path, "d.safetensors", tensors))


def test_halves_of_different_families_do_not_make_an_autoencoder(tmp_path: Path) -> None:
    decoder = file(tmp_path, "d.safetensors", decoder_tensors(16))
    encoder = file(tmp_path, "e.safetensors", encoder_tensors(4))
    with pytest.raises(ModelFileError, match=r"d\.safetensors: decodes latents of 16 channels.*of 4"):
        ModelPool().vae(VaeRef(decoder, encoder, "taesd3"))


def test_latents_of_another_number_of_channels_are_refused(tmp_path: Path) -> None:
    decoder = file(tmp_path, "d.safetensors", decoder_tensors(16))
    encoder = file(tmp_path, "e.safetensors", encoder_tensors(16))
    with pytest.raises(PromptError, match="16 channels"):
        ModelPool().vae(VaeRef(decoder, encoder, "taesd3")).decode(random(1, 4, 2, 2))
    with pytest.raises(ModelFileError, match="16 channels"):
        ModelPool().tiny_decoder(decoder).decode(random(1, 4, 2, 2))
