"""Loaders give handles; equal choices give equal handles."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.graph.declaration import FileChoices
from comfyserverless.nodes.loaders import MAX_LORAS
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog, FakeContext
from tests.support.graph_lowered import CLIP, MODEL, VAE, lower, output

STYLE = FileRef("/models/loras/style.safetensors")


async def test_checkpoint_gives_model_text_encoder_with_embeddings_and_autoencoder() -> None:
    ctx = FakeContext()
    result = await lower("CheckpointLoaderSimple", ctx, ckpt_name="sd15_tiny.safetensors")
    assert result.outputs == (MODEL, CLIP, VAE)
    assert ctx.calls == []


async def test_missing_checkpoint_names_file_and_folder() -> None:
    with pytest.raises(PromptError, match=r"gone.*checkpoints"):
        await lower("CheckpointLoaderSimple", ckpt_name="gone")


async def test_a_text_encoder_of_its_own_is_the_same_under_every_type_that_reads_it_alike() -> None:
    name = {"clip_name": "t5xxl_tiny.safetensors"}
    clip = await output("CLIPLoader", type="stable_diffusion", **name)
    assert clip == ClipRef(
        (FileRef("/models/text_encoders/t5xxl_tiny.safetensors"),), "", (), None, CLIP.embeddings
    )
    assert await output("CLIPLoader", type="wan", device="cpu", **name) == clip
    with pytest.raises(PromptError, match="type 'sd3' are not supported"):
        await output("CLIPLoader", type="sd3", **name)


async def test_pair_of_text_encoders_is_one_of_sdxl() -> None:
    names = {"clip_name1": "t5xxl_tiny.safetensors", "clip_name2": "t5xxl_tiny.safetensors"}
    clip = await output("DualCLIPLoader", type="sdxl", **names)
    file = FileRef("/models/text_encoders/t5xxl_tiny.safetensors")
    assert clip == ClipRef((file, file), embeddings=CLIP.embeddings)
    with pytest.raises(PromptError, match="type 'flux' are not supported"):
        await output("DualCLIPLoader", type="flux", **names)


async def test_diffusion_model_of_a_file_of_its_own_runs_in_the_types_that_the_server_chooses() -> None:
    name = {"unet_name": "net.safetensors"}
    model = await output("UNETLoader", weight_dtype="default", **name)
    assert model == ModelRef(FileRef("/models/diffusion_models/net.safetensors"))
    with pytest.raises(PromptError, match="not in 'fp8_e5m2'"):
        await output("UNETLoader", weight_dtype="fp8_e5m2", **name)


async def test_vae_and_control_net_come_from_their_folders() -> None:
    vae = await output("VAELoader", vae_name="sd_vae_tiny.safetensors")
    assert vae == VaeRef(FileRef("/models/vae/sd_vae_tiny.safetensors"))
    control_net = await output("ControlNetLoader", control_net_name="canny.safetensors")
    assert control_net == ControlNetRef(FileRef("/models/controlnet/canny.safetensors"))


async def test_lora_is_added_to_both_with_its_own_strength() -> None:
    lora = {"lora_name": "style.safetensors", "strength_model": 0.5, "strength_clip": -1.0}
    model, clip = (await lower("LoraLoader", model=MODEL, clip=CLIP, **lora)).outputs
    assert model.loras == (LoraRef(STYLE, 0.5),)
    assert clip.loras == (LoraRef(STYLE, -1.0),)
    assert clip.embeddings == CLIP.embeddings
    again, _ = (await lower("LoraLoader", model=model, clip=clip, **lora)).outputs
    assert again.loras == (LoraRef(STYLE, 0.5), LoraRef(STYLE, 0.5))
    assert MODEL.loras == ()


@pytest.mark.parametrize(("strength_model", "strength_clip"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
async def test_lora_with_strength_zero_leaves_the_handle_equal(
    strength_model: float, strength_clip: float
) -> None:
    model, clip = (
        await lower(
            "LoraLoader",
            model=MODEL,
            clip=CLIP,
            lora_name="style.safetensors",
            strength_model=strength_model,
            strength_clip=strength_clip,
        )
    ).outputs
    assert (model == MODEL) == (strength_model == 0)
    assert (clip == CLIP) == (strength_clip == 0)


async def test_lora_without_any_strength_does_not_need_its_file() -> None:
    gone = {"lora_name": "gone", "strength_model": 0.0}
    assert (await lower("LoraLoader", model=MODEL, clip=CLIP, strength_clip=0.0, **gone)).outputs == (
        MODEL,
        CLIP,
    )
    assert await output("LoraLoaderModelOnly", model=MODEL, **gone) == MODEL


async def test_lora_for_the_model_only() -> None:
    model = await output("LoraLoaderModelOnly", model=MODEL, lora_name="style.safetensors", strength_model=2.0)
    assert model.loras == (LoraRef(STYLE, 2.0),)


@pytest.mark.parametrize("value", ["hello", None, CLIP, VAE])
async def test_literal_where_a_model_should_be_is_told_by_input_and_type(value: object) -> None:
    with pytest.raises(PromptError, match=r"'model' takes a MODEL, but got"):
        await lower("LoraLoaderModelOnly", model=value, lora_name="style.safetensors", strength_model=1.0)


@pytest.mark.parametrize(
    ("node", "name", "file"),
    [
        ("CheckpointLoaderSimple", "ckpt_name", "sd15_tiny.safetensors"),
        ("VAELoader", "vae_name", "sd_vae_tiny.safetensors"),
        ("UNETLoader", "unet_name", "net.safetensors"),
        ("ControlNetLoader", "control_net_name", "canny.safetensors"),
        ("LoraLoader", "lora_name", "style.safetensors"),
        ("LoraLoaderModelOnly", "lora_name", "style.safetensors"),
    ],
)
def test_a_replaced_file_changes_its_loaders_token(node: str, name: str, file: str) -> None:
    declaration = BUILTIN.get(node)
    assert declaration is not None
    assert declaration.is_changed is not None
    tokens = [
        declaration.is_changed(FakeCatalog(identities={file: FileRef("/models/x", 10, time)}), {name: file})
        for time in (1, 1, 2)
    ]
    assert tokens[0] == tokens[1] != tokens[2]
    assert declaration.is_changed(FakeCatalog(), {name: None}) is None, "linked"


def test_every_node_that_names_a_model_file_has_a_token_of_it() -> None:
    for name in BUILTIN.names():
        declaration = BUILTIN.get(name)
        assert declaration is not None
        if any(isinstance(spec.type, FileChoices) for spec in declaration.inputs):
            assert declaration.is_changed is not None, name


async def test_chain_of_loras_has_an_end() -> None:
    lora = {"lora_name": "style.safetensors", "strength_model": 1.0}
    model = MODEL
    for _ in range(MAX_LORAS):
        model = await output("LoraLoaderModelOnly", model=model, **lora)
    with pytest.raises(PromptError, match=f"More than {MAX_LORAS} LoRAs"):
        await output("LoraLoaderModelOnly", model=model, **lora)
