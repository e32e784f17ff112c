"""Previews while sampling, on a server that has the files of one tiny autoencoder."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageStat

from tests.support.client import Client, RunResult
from tests.support.server import RunningServer, ServerOptions
from tests.support.tiny_autoencoders import decoder_tensors, encoder_tensors, write_tensors

STEPS = 3
SIZE_PX = 64


@pytest.fixture(scope="module")
def approximate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a models folder with both files of `taesd`."""
    folder = tmp_path_factory.mktemp("models") / "vae_approx"
    write_tensors(folder / "taesd_decoder.pth", decoder_tensors())
    write_tensors(folder / "taesd_encoder.safetensors", encoder_tensors())
    return folder.parent


@pytest.fixture(scope="module")
def previewing(
    tiny_models: Path, approximate: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    flags = ("--cache-none", "--preview-size", str(SIZE_PX), "--models-directory", str(approximate))
    server = RunningServer.start(ServerOptions(tmp_path_factory.mktemp("s"), tiny_models, flags))
    yield server
    server.stop()


def graph(family: str = "sd15") -> dict[str, Any]:
    """Return a picture of a model, decoded by its own autoencoder and by the tiny one."""
    sampling = {"seed": 5, "steps": STEPS, "cfg": 4.0, "sampler_name": "euler", "scheduler": "normal"}
    sampling |= {"denoise": 1.0, "model": ["1", 0], "positive": ["2", 0], "negative": ["2", 0]}
    made = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": f"{family}_tiny.safetensors"}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["1", 1]}},
        "3": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": SIZE_PX, "height": SIZE_PX, "batch_size": 2},
        },
        "4": {"class_type": "KSampler", "inputs": {**sampling, "latent_image": ["3", 0]}},
        "5": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["1", 2]}},
        "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "own"}},
    }
    if family == "sd15":
        made["7"] = {"class_type": "VAELoader", "inputs": {"vae_name": "taesd"}}
        made["8"] = {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["7", 0]}}
        made["9"] = {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "tiny"}}
    return made


async def run(client: Client, method: str, family: str = "sd15") -> RunResult:
    result = await client.run(graph(family), extra_data={"preview_method": method})
    assert result.outcome == "execution_success", result.messages
    return result


async def pictures(client: Client, result: RunResult) -> dict[str, bytes]:
    """Return the first picture of each batch, by the beginning of its name."""
    first = reversed(result.images())
    return {entry["filename"].partition("_")[0]: await client.image(entry) for entry in first}


def picture(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def as_jpeg(image: Image.Image) -> Image.Image:
    """Return a picture as previews have it."""
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=85)
    return Image.open(buffer)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the mean difference of two pictures, in levels."""
    assert one.size == other.size
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


async def test_previews_of_taesd_are_what_its_autoencoder_makes_of_the_latent(
    previewing: RunningServer,
) -> None:
    async with Client(previewing.url) as client:
        results = {method: await run(client, method) for method in ("taesd", "latent2rgb", "auto", "none", "x")}
        images = {name: await pictures(client, result) for name, result in results.items()}
    counts = {method: len(result.previews) for method, result in results.items()}
    assert counts == {"taesd": STEPS, "latent2rgb": STEPS, "auto": STEPS, "none": 0, "x": 0}
    assert all(each == images["none"] for each in images.values()), "previews change no picture"
    tiny = picture(images["none"]["tiny"])
    shown = {method: picture(results[method].previews[-1]) for method in ("taesd", "latent2rgb", "auto")}
    assert shown["taesd"].size == (SIZE_PX, SIZE_PX)
    assert difference(shown["taesd"], as_jpeg(tiny)) < 4, "levels are rounded in other places"
    assert difference(shown["latent2rgb"], as_jpeg(tiny)) > 20
    assert difference(shown["latent2rgb"], shown["auto"]) == 0


async def test_without_the_file_or_with_a_broken_one_colours_are_shown_and_one_warning_tells(
    previewing: RunningServer, approximate: Path
) -> None:
    file = approximate / "vae_approx" / "taesdxl_decoder.safetensors"
    async with Client(previewing.url) as client:
        plain = (await run(client, "latent2rgb", "sdxl")).previews
        missing = [(await run(client, "taesd", "sdxl")).previews for _ in range(2)]
        file.write_bytes(b"broken")
        try:
            broken = [(await run(client, "taesd", "sdxl")).previews for _ in range(2)]
        finally:
            file.unlink()
    assert plain
    assert all(each == plain for each in (*missing, *broken))
    log = previewing.log()
    assert log.count("no file taesdxl_decoder in models/vae_approx") == 1
    assert log.count(f"latent2rgb is shown: {file}") == 1


async def test_loader_offers_the_autoencoder_whose_files_are_both_there(previewing: RunningServer) -> None:
    async with Client(previewing.url) as client:
        info = await client.get("/object_info/VAELoader")
    assert info["VAELoader"]["input"]["required"]["vae_name"][0][-1] == "taesd"
