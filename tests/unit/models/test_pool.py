"""The pool of a worker, with files that need no model library."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import CapacityError, ModelFileError, NoRoomError
from comfyserverless.core.values import ClipRef, FileRef, LoraRef, ModelRef
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.models.previews.colours import guess_colours
from tests.support.make_tiny_models import Spec, build
from tests.unit.models.files import mini_clip, mini_unet, write_file


def test_facts_come_from_the_header_alone(tmp_path: Path) -> None:
    tensors = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    pool = ModelPool()
    ref = ModelRef(write_file(tmp_path / "m.safetensors", tensors))
    assert pool.facts(ref).family == "sd15"
    (tmp_path / "m.safetensors").unlink()
    assert pool.facts(ref).family == "sd15", "kept"
    assert pool.weights_bytes == 0


def test_equal_handles_share_their_weights(tmp_path: Path) -> None:
    file = write_file(tmp_path / "l.safetensors", mini_clip())
    pool = ModelPool()
    encoders = [pool.text(ClipRef((file,), last_layer=layer)) for layer in (None, -2)]
    for encoder in encoders:
        encoder.encode("a cat")
    assert pool.weights_bytes == sum(t.nbytes for t in mini_clip().values())


def test_a_replaced_file_loads_anew(tmp_path: Path) -> None:
    path, pool = tmp_path / "l.safetensors", ModelPool()
    tensors = mini_clip()
    before, _ = pool.text(ClipRef((write_file(path, tensors),))).encode("a cat")
    tensors["text_model.final_layer_norm.bias"] += 1
    write_file(path, tensors)
    os.utime(path, ns=(0, 0))  # a time of its own, however coarse the clock of the file system is
    replaced = FileRef(str(path), path.stat().st_size, path.stat().st_mtime_ns)
    after, _ = pool.text(ClipRef((replaced,))).encode("a cat")
    assert torch.allclose(after, before + 1, atol=1e-2)


def test_the_budget_frees_the_end_of_what_was_used_least_recently(tmp_path: Path) -> None:
    files = [write_file(tmp_path / f"{at}.safetensors", mini_clip()) for at in range(3)]
    one_bytes = sum(t.nbytes for t in mini_clip().values())
    pool = ModelPool(options=PoolOptions(device_bytes=2 * one_bytes))
    encoders = [pool.text(ClipRef((file,))) for file in files]
    results = [encoder.encode("a cat")[0] for encoder in encoders]
    assert all(torch.equal(result, results[0]) for result in results)
    assert pool.weights_bytes <= 2 * one_bytes
    present = [pool.keeper.present(encoder.parts[0].models[0]) for encoder in encoders]
    assert present[2] == [0, 1, 2, 3]
    assert len(present[0]) < 4
    assert all(layers == list(range(len(layers))) for layers in present), "fronts stay"
    again, _ = encoders[0].encode("a cat")
    assert torch.equal(again, results[0]), "what was freed comes back"


def test_a_model_larger_than_the_budget_runs_and_a_layer_larger_is_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path / "l.safetensors", mini_clip())
    sizes_bytes = [layer.size_bytes for layer in ModelPool().text(ClipRef((file,))).parts[0].models[0].layers]
    tight = ModelPool(options=PoolOptions(device_bytes=max(sizes_bytes)))
    expected, _ = ModelPool().text(ClipRef((file,))).encode("a cat")
    for _ in range(2):
        assert torch.equal(tight.text(ClipRef((file,))).encode("a cat")[0], expected)
        assert tight.weights_bytes <= max(sizes_bytes)
    with pytest.raises(
        CapacityError, match=r"layers of text l of .*l.safetensors #.*--device-memory"
    ) as caught:
        ModelPool(options=PoolOptions(device_bytes=max(sizes_bytes) - 1)).text(ClipRef((file,))).encode("a cat")
    assert not isinstance(caught.value, NoRoomError), "no result that is let go would help"


def test_space_that_communication_claims_is_given_back_and_can_be_taken_again(tmp_path: Path) -> None:
    file = write_file(tmp_path / "l.safetensors", mini_clip())
    budget_bytes = sum(t.nbytes for t in mini_clip().values())
    pool = ModelPool(options=PoolOptions(device_bytes=budget_bytes))
    expected, _ = pool.text(ClipRef((file,))).encode("a cat")
    assert pool.claim(budget_bytes) == 0
    assert pool.weights_bytes == 0
    assert pool.claim(0) == 0
    assert torch.equal(pool.text(ClipRef((file,))).encode("a cat")[0], expected)


def test_a_file_that_is_gone_when_its_layers_come_back_is_named(tmp_path: Path) -> None:
    file = write_file(tmp_path / "l.safetensors", mini_clip())
    pool = ModelPool()
    encoder = pool.text(ClipRef((file,)))
    encoder.encode("a cat")
    (tmp_path / "l.safetensors").unlink()
    encoder.encode("what is resident does not need the file")
    pool.unload_all()
    with pytest.raises(ModelFileError, match=r"l\.safetensors: cannot be read"):
        encoder.encode("a cat")
    assert pool.weights_bytes == 0


def test_unload_all_forgets_everything(tmp_path: Path) -> None:
    pool = ModelPool()
    pool.text(ClipRef((write_file(tmp_path / "l.safetensors", mini_clip()),))).encode("a cat")
    assert pool.weights_bytes > 0
    pool.unload_all()
    assert pool.weights_bytes == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file, pool = FileRef(str(tmp_path / "gone.safetensors")), ModelPool()
    for load in (lambda: pool.facts(ModelRef(file)), lambda: pool.text(ClipRef((file,)))):
        with pytest.raises(ModelFileError, match=r"gone\.safetensors: cannot be read"):
            load()


def test_two_threads_load_a_file_once(tmp_path: Path) -> None:
    ref, pool = ClipRef((write_file(tmp_path / "l.safetensors", mini_clip()),)), ModelPool()
    with ThreadPoolExecutor(2) as executor:
        results = list(executor.map(lambda _: pool.text(ref).encode("a cat")[0], range(8)))
    assert all(torch.equal(result, results[0]) for result in results)
    (model,) = pool.text(ref).parts[0].models
    assert model.loaded_bytes == sum(t.nbytes for t in mini_clip().values())


def test_parts_of_an_old_and_a_new_file_never_meet(tmp_path: Path) -> None:
    path, pool = tmp_path / "m.safetensors", ModelPool()
    network = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    file = write_file(path, {**network, **mini_clip("cond_stage_model.transformer.")})
    pool.text(ClipRef((file,))).encode("a cat")
    os.utime(path, ns=(1, 1))
    for load in (lambda: pool.facts(ModelRef(file)), lambda: pool.diffusion(ModelRef(file))):
        with pytest.raises(ModelFileError, match=r"m\.safetensors: was replaced"):
            load()
    pool.text(ClipRef((file,))).encode("what is loaded already stays good")


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    whole = {name: tensor.to(torch.int8) for name, tensor in mini_clip().items()}
    with pytest.raises(ModelFileError, match="quantised weights are not supported"):
        ModelPool().text(ClipRef((write_file(tmp_path / "a.safetensors", whole),)))


def test_a_lora_that_was_replaced_is_refused(tmp_path: Path) -> None:
    clip, lora = (write_file(tmp_path / f"{n}.safetensors", mini_clip()) for n in ("clip", "lora"))
    os.utime(lora.path, ns=(1, 1))
    with pytest.raises(ModelFileError, match=r"lora\.safetensors: was replaced"):
        ModelPool().text(ClipRef((clip,), loras=(LoraRef(lora, 1.0),)))


def test_an_inpainting_model_is_known_by_its_input_channels(tmp_path: Path) -> None:
    tensors = build(mini_unet(in_ch=9), "m", torch.float16)
    facts = ModelPool().facts(ModelRef(write_file(tmp_path / "m.safetensors", tensors)))
    assert (facts.is_inpainting, facts.latent_channels) == (True, 4)


def test_models_of_other_input_channels_are_refused(tmp_path: Path) -> None:
    tensors = build(mini_unet(in_ch=5), "m", torch.float16)
    with pytest.raises(ModelFileError, match=r"m\.safetensors: .* takes 5 input channels, .*: 4, .* 8, .* 9\)"):
        ModelPool().facts(ModelRef(write_file(tmp_path / "m.safetensors", tensors)))


def test_a_file_of_no_family_is_called_that_when_its_text_encoder_is_asked_for(tmp_path: Path) -> None:
    vae = write_file(tmp_path / "vae.safetensors", {"decoder.conv_in.weight": torch.ones(1)})
    with pytest.raises(ModelFileError, match=r"vae\.safetensors: is no diffusion model .*supported: sd15"):
        ModelPool().text(ClipRef((vae,)))
    network = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    with pytest.raises(ModelFileError, match=r"net\.safetensors: holds no CLIP text encoder"):
        ModelPool().text(ClipRef((write_file(tmp_path / "net.safetensors", network),)))


def test_previews_of_a_model_with_a_bad_autoencoder_have_plain_colours(tmp_path: Path) -> None:
    network = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    broken = {"first_stage_model.decoder.conv_in.weight": torch.ones(3)}
    for at, tensors in enumerate((network, network | broken)):
        colours = ModelPool().previewer.colours(ModelRef(write_file(tmp_path / f"{at}.safetensors", tensors)))
        assert torch.equal(colours.factors, guess_colours(4).factors)
