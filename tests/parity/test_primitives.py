"""Compare single building blocks with ComfyUI's recorded results: text, one network call, autoencoder.

The bar is a largest difference of 1e-4 times the spread of the expected values; on the processor and torch
version of the recording most results are bit-identical, elsewhere vector instructions move the last bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.families.base import DiffusionModel
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.unet_layout import read_layout, unet_names
from comfyserverless.sampling.parametrization import discrete_parametrization

DATA = Path(__file__).parent / "data"
BAR = 1e-4
PROMPTS = json.loads((DATA / "tokens.json").read_text())["prompts"]
POSITIVE, NEGATIVE = "a photo of a red cat", "blurry"
BLANK_LATENT = (0.8223, -0.6876, 0.6364, 0.1380)
"""What an inpainting model is shown beside the mask when a graph gives it no picture."""


def difference(got: Tensor, wanted: Tensor) -> float:
    """Return the largest difference relative to the spread of the wanted values."""
    assert got.shape == wanted.shape
    return ((got - wanted).abs().max() / wanted.std()).item()


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool()


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Tensor]:
    return {
        name: tensor
        for part in ("text", "unet", "vae")
        for name, tensor in load_file(DATA / f"{part}.safetensors").items()
    }


def checkpoint(tiny_models: Path, name: str) -> FileRef:
    return FileRef(str(tiny_models / "checkpoints" / f"{name}_tiny.safetensors"))


@pytest.mark.parametrize("number", [3, 20, 25], ids=lambda number: PROMPTS[number][:24])
@pytest.mark.parametrize("family", ["sd15", "sdxl"])
def test_text_features(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor], family: str, number: int
) -> None:
    ref = ClipRef((checkpoint(tiny_models, family),), embeddings=(str(tiny_models / "embeddings"),))
    cond, pooled = pool.text(ref).encode(PROMPTS[number])
    assert pooled is not None
    assert difference(cond, recorded[f"{family}/{number}/cond"]) <= BAR
    assert difference(pooled, recorded[f"{family}/{number}/pooled_output"]) <= BAR


def denoise(model: DiffusionModel, encoder_ref: ClipRef, pool: ModelPool, x: Tensor, sigma: Tensor) -> Tensor:
    """Return the denoised latents of the positive and the negative prompt, run as one batch."""
    parametrization = discrete_parametrization("epsilon")
    (cond, pooled), (uncond, unpooled) = (pool.text(encoder_ref).encode(text) for text in (POSITIVE, NEGATIVE))
    adm = None
    if model.facts.adm_width is not None:
        vectors = [model.adm(vector, x.shape[3] * 8, x.shape[2] * 8, {}) for vector in (pooled, unpooled)]
        adm = torch.cat([vector for vector in vectors if vector is not None])
    x_in = (x / (sigma**2 + 1) ** 0.5).repeat(2, 1, 1, 1)
    if model.facts.in_channels == 9:
        blank = torch.tensor(BLANK_LATENT).view(1, 4, 1, 1).expand(2, 4, *x.shape[2:])
        x_in = torch.cat((x_in, torch.ones(2, 1, *x.shape[2:]), blank), dim=1)
    timesteps = parametrization.timestep(sigma).float().expand(2)
    return x - model.predict(x_in, timesteps, torch.cat((cond, uncond)), adm) * sigma


@pytest.mark.parametrize("percent", ["0.0", "0.7"])
@pytest.mark.parametrize("family", ["sd15", "sd15_inpaint", "sdxl"])
def test_one_network_call(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor], family: str, percent: str
) -> None:
    prefix = f"{family}/{percent}"
    text = checkpoint(tiny_models, family.removesuffix("_inpaint"))
    model = pool.diffusion(ModelRef(checkpoint(tiny_models, family)))
    sigma = recorded[f"{prefix}/sigma"].float()
    denoised = denoise(model, ClipRef((text,)), pool, recorded[f"{prefix}/x_in"], sigma)
    assert difference(denoised[:1], recorded[f"{prefix}/cond_denoised"]) <= BAR
    assert difference(denoised[1:], recorded[f"{prefix}/uncond_denoised"]) <= BAR


def test_autoencoder(tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor]) -> None:
    vae = pool.vae(VaeRef(FileRef(str(tiny_models / "vae" / "sd_vae_tiny.safetensors"))))
    assert difference(vae.encode(recorded["image"]), recorded["latent"]) <= BAR
    assert difference(vae.decode(recorded["latent"]), recorded["decoded"]) <= BAR


def test_odd_sizes_are_cropped_around_the_centre_before_encoding(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor]
) -> None:
    vae = pool.vae(VaeRef(FileRef(str(tiny_models / "vae" / "sd_vae_tiny.safetensors"))))
    image = recorded["image"][:, :61, :93]
    assert torch.equal(vae.encode(image), vae.encode(image[:, 2:58, 2:90]))


def test_preview_colours_follow_the_decoder(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor]
) -> None:
    colours = pool.previewer.colours(ModelRef(checkpoint(tiny_models, "sd15")))
    rgb = colours.latent_to_rgb(recorded["latent"])
    assert rgb.shape == (8, 12, 3)
    assert colours.factors.isfinite().all()
    assert colours.factors[:-1].abs().max() > 0


def test_a_unet_lora_costs_its_layers_only_and_leaves_the_base_alone(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor]
) -> None:
    file = checkpoint(tiny_models, "sd15")
    lora = LoraRef(FileRef(str(tiny_models / "loras" / "sd15_style_tiny.safetensors")), 0.8)
    x, sigma = recorded["sd15/0.7/x_in"], recorded["sd15/0.7/sigma"].float()
    before = denoise(pool.diffusion(ModelRef(file)), ClipRef((file,)), pool, x, sigma)
    base_bytes = pool.weights_bytes
    changed = denoise(pool.diffusion(ModelRef(file, (lora,))), ClipRef((file,)), pool, x, sigma)
    after = denoise(pool.diffusion(ModelRef(file)), ClipRef((file,)), pool, x, sigma)
    assert torch.equal(before, after)
    assert difference(changed, before) > 0.03
    added = pool.weights_bytes - base_bytes
    assert 0 < added < base_bytes / 2


def test_a_controlnet_gives_a_residual_for_each_block_and_changes_the_result(
    tiny_models: Path, pool: ModelPool, recorded: Mapping[str, Tensor]
) -> None:
    file = checkpoint(tiny_models, "sd15")
    control = pool.controlnet(
        ControlNetRef(FileRef(str(tiny_models / "controlnet" / "sd15_canny_tiny.safetensors")))
    )
    model = pool.diffusion(ModelRef(file))
    cond, _ = pool.text(ClipRef((file,))).encode(POSITIVE)
    x, timesteps = recorded["sd15/0.7/x_in"], torch.tensor([300.0])
    hint = control.prepare_hint(recorded["image"], 96, 64)
    residuals = control.residuals(x, timesteps, cond, hint)
    assert len(residuals) == 13
    plain = model.predict(x, timesteps, cond)
    steered = model.predict(x, timesteps, cond, residuals=residuals)
    unmoved = model.predict(x, timesteps, cond, residuals=[torch.zeros_like(r) for r in residuals])
    assert torch.equal(plain, unmoved)
    assert difference(steered, plain) > 0.03


def test_models_under_diffusers_names_give_equal_bits(
    tmp_path: Path, tiny_models: Path, pool: ModelPool
) -> None:
    from safetensors.torch import save_file

    original = checkpoint(tiny_models, "sd15")
    weights = open_weights(original.path).below("model.diffusion_model.")
    renamed = weights.renamed(unet_names(read_layout(weights), weights))
    save_file({name: renamed.load(name) for name in renamed}, tmp_path / "unet.safetensors")
    x, timesteps, context = torch.ones(1, 4, 8, 8), torch.tensor([10.0]), torch.ones(1, 77, 128)
    outputs = [
        pool.diffusion(ModelRef(FileRef(path))).predict(x, timesteps, context)
        for path in (original.path, str(tmp_path / "unet.safetensors"))
    ]
    assert torch.equal(*outputs)
