from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef
from comfyserverless.functions.image import ImageLoad, ImageLoadMask, ImageSave, ImageScale
from tests.support.recorded_bits import equals_recorded_pixels

DATA = Path(__file__).parent / "data"
"""Inputs, and what ComfyUI 0.8.0 made of them."""


def load(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = ImageLoad().execute({}, file=FileRef(str(path)))
    return outputs["images"], outputs["mask"]


def save(images: torch.Tensor, directory: Path, metadata: Any = None, compress_level: int = 4) -> list[str]:
    outputs = ImageSave().execute(
        {},
        images=images,
        directory=str(directory),
        stem="s",
        metadata=metadata or {},
        compress_level=compress_level,
    )
    files: list[str] = outputs["files"]
    return files


def scale(images: torch.Tensor, width: int, height: int, method: str, crop: str = "disabled") -> torch.Tensor:
    outputs = ImageScale().execute({}, images=images, width=width, height=height, method=method, crop=crop)
    scaled: torch.Tensor = outputs["images"]
    return scaled


def pixels(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def test_rgb_file_becomes_floats_with_an_empty_mask(tmp_path: Path) -> None:
    rgb = pixels(5, 4, 3)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    images, mask = load(tmp_path / "a.png")
    assert images.dtype == torch.float32
    assert torch.equal(images, torch.from_numpy(rgb.astype(np.float32) / 255.0)[None])
    assert torch.equal(mask, torch.zeros(1, 64, 64))


def test_alpha_becomes_the_mask(tmp_path: Path) -> None:
    rgba = pixels(5, 4, 4)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    images, mask = load(tmp_path / "a.png")
    assert images.shape == (1, 5, 4, 3)
    assert torch.equal(mask[0], 1.0 - torch.from_numpy(rgba[..., 3].astype(np.float32) / 255.0))


def test_transparent_colour_of_a_palette_becomes_the_mask(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), mode="P")
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.save(tmp_path / "a.png", transparency=1)
    images, mask = load(tmp_path / "a.png")
    assert torch.equal(images[0, 0], torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]))
    assert torch.equal(mask[0], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_sixteen_bit_gray_keeps_its_range(tmp_path: Path) -> None:
    deep = np.array([[0, 1000, 32768, 65535]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    images, _ = load(tmp_path / "a.png")
    assert (images[0, 0, :, 0] * 255).round().tolist() == [0, 3, 128, 255]


def test_rotation_of_a_camera_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right by 90 degrees to see it upright
    rgb = pixels(2, 3, 3)
    Image.fromarray(rgb).save(tmp_path / "a.png", exif=exif)
    images, _ = load(tmp_path / "a.png")
    assert torch.equal(images[0], torch.from_numpy(np.rot90(rgb, -1).astype(np.float32) / 255.0))


def test_frames_of_equal_size_become_a_batch(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(6, 6, 3)), Image.fromarray(255 - pixels(6, 6, 3))]
    frames[0].save(tmp_path / "a.tiff", save_all=True, append_images=[frames[1], frames[0].resize((3, 3))])
    images, mask = load(tmp_path / "a.tiff")
    assert images.shape == (2, 6, 6, 3)
    assert mask.shape == (2, 64, 64)
    assert torch.equal(images[1], torch.from_numpy(np.asarray(frames[1]).astype(np.float32) / 255.0))


def test_animation_with_partial_alpha_has_one_mask_per_frame(tmp_path: Path) -> None:
    opaque = Image.new("RGB", (80, 70), "red")
    clear = Image.new("RGBA", (80, 70), (0, 255, 0, 0))
    opaque.save(tmp_path / "a.gif", save_all=True, append_images=[clear])
    images, mask = load(tmp_path / "a.gif")
    assert images.shape[0] == mask.shape[0]
    assert mask.shape[1:] in ((70, 80), (64, 64))


def test_file_that_ends_early_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    Image.fromarray(pixels(64, 64, 3)).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "part.png").write_bytes(whole[: len(whole) // 2])
    images, _ = load(tmp_path / "part.png")
    expected, _ = load(tmp_path / "whole.png")
    assert torch.equal(images[:, :10], expected[:, :10])


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_file_that_is_no_image_is_the_prompts_fault(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    with pytest.raises(PromptError, match=r"cannot read image 'bad\.png'"):
        load(tmp_path / "bad.png")


def test_missing_file_is_the_prompts_fault(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"cannot read image 'none\.png'"):
        load(tmp_path / "none.png")


def test_saved_values_are_cut_off_and_truncated(tmp_path: Path) -> None:
    values = torch.tensor([-0.5, 0.999, 1.5, float("nan"), 0.5, 1.0]).reshape(1, 1, 2, 3)
    (file,) = save(values, tmp_path / "new" / "folder")
    assert np.asarray(Image.open(file)).reshape(-1).tolist() == [0, 254, 255, 0, 127, 255]


def test_saved_batch_is_one_part_file_per_image(tmp_path: Path) -> None:
    images = torch.from_numpy(pixels(3, 8, 8, 4).astype(np.float32) / 255.0)
    files = save(images, tmp_path)
    assert files == [str(tmp_path / f"s_{index}.part") for index in range(3)]
    with Image.open(files[2]) as image:
        assert (image.format, image.mode) == ("PNG", "RGBA")
        assert np.array_equal(np.asarray(image), (images[2] * 255).to(torch.uint8).numpy())


def test_saved_file_carries_the_texts_and_its_bytes_are_always_the_same(tmp_path: Path) -> None:
    images = torch.from_numpy(pixels(1, 16, 16, 3).astype(np.float32) / 255.0)
    texts = {"prompt": '{"1": "ä"}', "workflow": '{"nodes": ["\u4e2d"]}'}
    (first,) = save(images, tmp_path / "a", texts)
    (second,) = save(images, tmp_path / "b", texts)
    with Image.open(first) as image:
        assert image.text == texts  # type: ignore[attr-defined]
    assert Path(first).read_bytes() == Path(second).read_bytes()


def test_compress_level_changes_bytes_and_not_pixels(tmp_path: Path) -> None:
    images = torch.linspace(0, 1, 64 * 64 * 3).reshape(1, 64, 64, 3)
    (loose,) = save(images, tmp_path / "a", compress_level=0)
    (tight,) = save(images, tmp_path / "b", compress_level=9)
    assert Path(tight).stat().st_size < Path(loose).stat().st_size / 2
    assert np.array_equal(np.asarray(Image.open(loose)), np.asarray(Image.open(tight)))


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"])
def test_every_method_gives_the_size_and_keeps_a_flat_image_flat(method: str) -> None:
    scaled = scale(torch.full((2, 8, 12, 3), 0.4), 7, 5, method)
    assert scaled.shape == (2, 5, 7, 3)
    assert torch.allclose(scaled, torch.full_like(scaled, 0.4), atol=1 / 255)


def test_lanczos_goes_through_eight_bits(tmp_path: Path) -> None:
    image = torch.from_numpy(pixels(1, 9, 9, 3).astype(np.float32) / 255.0) + 0.001
    scaled = scale(image, 5, 4, "lanczos")
    assert torch.equal(scaled, (scaled * 255).round() / 255.0)


def test_center_crop_cuts_the_longer_side_to_the_ratio() -> None:
    image = torch.zeros(1, 4, 12, 1)
    image[:, :, 4:8] = 1.0
    assert torch.equal(scale(image, 4, 4, "nearest-exact", "center"), torch.ones(1, 4, 4, 1))
    assert scale(image, 4, 4, "nearest-exact").mean() == 0.5
    tall = image.movedim(1, 2)
    assert torch.equal(scale(tall, 8, 8, "nearest-exact", "center"), torch.ones(1, 8, 8, 1))


@pytest.mark.parametrize(
    ("recorded", "source", "arguments"),
    [
        ("scale_up_bilinear", "input_96x64", (150, 90, "bilinear", "disabled")),
        ("scale_by_area", "input_96x64", (132, 88, "area", "disabled")),
        ("scale_by_bicubic", "input_96x64", (132, 88, "bicubic", "disabled")),
        ("scale_down_bicubic", "input_128", (50, 37, "bicubic", "center")),
    ],
)
def test_scaled_pixels_are_those_of_comfyui(
    tmp_path: Path, recorded: str, source: str, arguments: tuple[int, int, str, str]
) -> None:
    images, _ = load(DATA / f"{source}.png")
    (file,) = save(scale(images, *arguments), tmp_path)
    pixels_of = (np.asarray(Image.open(path)) for path in (file, DATA / f"{recorded}.png"))
    assert equals_recorded_pixels(*pixels_of)


def test_loaded_pixels_and_mask_are_those_of_comfyui(tmp_path: Path) -> None:
    images, mask = load(DATA / "input_rgba_96x64.png")
    for name, tensor in (("load_rgba", images), ("load_alpha", mask[..., None].expand(-1, -1, -1, 3))):
        (file,) = save(tensor, tmp_path)
        assert np.array_equal(np.asarray(Image.open(file)), np.asarray(Image.open(DATA / f"{name}.png")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 5, "area", "disabled"), "0x5"),
        ((5, 5, "box", "disabled"), "'box' is none of nearest-exact"),
        ((5, 5, "area", "top"), "'top' is none of disabled, center"),
    ],
)
def test_bad_arguments_are_the_prompts_fault(arguments: tuple[int, int, str, str], words: str) -> None:
    with pytest.raises(PromptError, match=words):
        scale(torch.zeros(1, 4, 4, 3), *arguments)


@pytest.mark.parametrize("shape", [(1, 1000), (1000, 1), (1, 1)])
@pytest.mark.parametrize("method", ["nearest-exact", "area", "lanczos"])
def test_scaling_an_extreme_aspect_with_crop_keeps_a_pixel(shape: tuple[int, int], method: str) -> None:
    assert scale(torch.rand(1, *shape, 3), 64, 64, method, "center").shape == (1, 64, 64, 3)


def test_an_empty_batch_cannot_be_scaled() -> None:
    with pytest.raises(PromptError, match=r"cannot scale a batch of shape \[1, 3, 0, 5\]"):
        scale(torch.zeros(1, 0, 5, 3), 8, 8, "bilinear")


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tiff", "jpg"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_cut_anywhere_is_used_as_far_as_it_goes_or_refused_by_name(tmp_path: Path, kind: str) -> None:
    frames = [Image.fromarray(pixels(6, 5, 3)) for _ in range(1 if kind == "jpg" else 3)]
    path = tmp_path / f"cut.{kind}"
    more = {} if kind == "jpg" else {"save_all": True, "append_images": frames[1:]}
    frames[0].save(path, **more)
    whole = path.read_bytes()
    outcomes = set()
    for length in range(0, len(whole), 1 if kind == "gif" else 7):
        path.write_bytes(whole[:length])
        try:
            outcomes.add(load(path)[0].shape[1:])
        except PromptError as error:
            outcomes.add(str(error).split(":")[0])
    assert outcomes <= {(6, 5, 3), f"cannot read image 'cut.{kind}'"}
    assert f"cannot read image 'cut.{kind}'" in outcomes


def test_a_picture_without_its_sizes_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.tiff"
    Image.fromarray(pixels(6, 5, 3)).save(path)
    content = bytearray(path.read_bytes())
    content[content.index(b"\x00\x01", 8) + 1] = 0x7F  # tag 256, the width, becomes one that nobody knows
    path.write_bytes(content)
    with pytest.raises(PromptError, match=r"cannot read image 'a\.tiff'"):
        load(path)


def load_mask(path: Path, channel: str) -> torch.Tensor:
    mask: torch.Tensor = ImageLoadMask().execute({}, file=FileRef(str(path)), channel=channel)["mask"]
    return mask


def test_channel_of_a_file_becomes_a_mask(tmp_path: Path) -> None:
    rgba = pixels(5, 4, 4)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    floats = torch.from_numpy(rgba.astype(np.float32) / 255.0)
    for index, channel in enumerate(("red", "green", "blue")):
        assert torch.equal(load_mask(tmp_path / "a.png", channel), floats[None, ..., index])
    assert torch.equal(load_mask(tmp_path / "a.png", "alpha"), 1.0 - floats[None, ..., 3])


def test_file_without_alpha_masks_nothing_in_its_own_size(tmp_path: Path) -> None:
    Image.fromarray(pixels(5, 4, 3)).save(tmp_path / "a.png")
    assert torch.equal(load_mask(tmp_path / "a.png", "alpha"), torch.zeros(1, 5, 4))


def test_gray_file_has_its_values_in_every_colour(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.array([[0, 128, 255]], np.uint8)).save(tmp_path / "gray.png")
    for name in ("deep", "gray"):
        assert (load_mask(tmp_path / f"{name}.png", "blue")[0, 0] * 255).round().tolist() == [0, 128, 255]


def test_mask_is_of_the_first_frame_turned_upright(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(2, 3, 3)), Image.new("RGB", (3, 2))]
    exif = Image.Exif()
    exif[0x0112] = 6
    frames[0].save(tmp_path / "a.tiff", save_all=True, append_images=frames[1:], exif=exif)
    mask = load_mask(tmp_path / "a.tiff", "red")
    assert torch.equal(
        mask[0], torch.from_numpy(np.rot90(pixels(2, 3, 3), -1)[..., 0].astype(np.float32) / 255.0)
    )


def test_mask_file_that_ends_early_is_used_as_far_as_it_goes_and_others_are_refused(tmp_path: Path) -> None:
    Image.fromarray(pixels(64, 64, 3)).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "part.png").write_bytes(whole[: len(whole) // 2])
    expected = load_mask(tmp_path / "whole.png", "red")
    assert torch.equal(load_mask(tmp_path / "part.png", "red")[:, :10], expected[:, :10])
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(PromptError, match=r"cannot read image 'bad\.png'"):
        load_mask(tmp_path / "bad.png", "red")
