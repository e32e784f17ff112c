"""The pool of a worker, with files that need no model library."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import ClipRef, FileRef, LoraRef, ModelRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.preview import guess_colours
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
    first, second = (pool.text(ClipRef((file,), last_layer=layer)) for layer in (None, -2))
    assert first.parts is second.parts
    assert pool.weights_bytes == sum(t.nbytes for t in first.parts[0].weights.values())


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


def test_the_budget_drops_what_was_used_least_recently(tmp_path: Path) -> None:
    files = [write_file(tmp_path / f"{at}.safetensors", mini_clip()) for at in range(3)]
    one_bytes = sum(t.nbytes for t in mini_clip().values())
    pool = ModelPool(budget_bytes=2 * one_bytes)
    encoders = [pool.text(ClipRef((file,))) for file in files]
    assert pool.weights_bytes == 2 * one_bytes
    assert pool.text(ClipRef((files[2],))).parts is encoders[2].parts
    assert pool.text(ClipRef((files[0],))).parts is not encoders[0].parts


def test_unload_all_forgets_everything(tmp_path: Path) -> None:
    pool = ModelPool()
    pool.text(ClipRef((write_file(tmp_path / "l.safetensors", mini_clip()),)))
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
        encoders = list(executor.map(lambda _: pool.text(ref), range(8)))
    assert all(encoder.parts is encoders[0].parts for encoder in encoders)


def test_parts_of_an_old_and_a_new_file_never_meet(tmp_path: Path) -> None:
    path, pool = tmp_path / "m.safetensors", ModelPool()
    network = build(Spec().put("model.diffusion_model.", mini_unet()), "m", torch.float16)
    file = write_file(path, {**network, **mini_clip("cond_stage_model.transformer.")})
    pool.text(ClipRef((file,)))
    os.utime(path, ns=(1, 1))
    for load in (lambda: pool.facts(ModelRef(file)), lambda: pool.diffusion(ModelRef(file))):
        with pytest.raises(ModelFileError, match=r"m\.safetensors: was replaced"):
            load()
    assert pool.text(ClipRef((file,))), "what is loaded already stays good"


def test_a_lora_that_was_replaced_is_refused(tmp_path: Path) -> None:
    clip, lora = (write_file(tmp_path / f"{n}.safetensors", mini_clip()) for n in ("clip", "lora"))
    os.utime(lora.path, ns=(1, 1))
    with pytest.raises(ModelFileError, match=r"lora\.safetensors: was replaced"):
        ModelPool().text(ClipRef((clip,), loras=(LoraRef(lora, 1.0),)))


def test_an_inpainting_model_is_refused_by_its_input_channels(tmp_path: Path) -> None:
    tensors = build(mini_unet(in_ch=9), "m", torch.float16)
    with pytest.raises(ModelFileError, match=r"m\.safetensors: .* takes 9 input channels, .*supported: .*4"):
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
        colours = ModelPool().colours(ModelRef(write_file(tmp_path / f"{at}.safetensors", tensors)))
        assert torch.equal(colours.factors, guess_colours(4).factors)
