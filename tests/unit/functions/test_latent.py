from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef
from comfyserverless.functions.latent import (
    LatentComposite,
    LatentEmpty,
    LatentLoad,
    LatentRepeat,
    LatentSave,
    LatentSlice,
    LatentUpscale,
)
from tests.support.recorded_bits import equals_recorded


def upscale(
    samples: torch.Tensor, width: int, height: int, method: str, crop: str = "disabled"
) -> torch.Tensor:
    outputs = LatentUpscale().execute({}, samples=samples, width=width, height=height, method=method, crop=crop)
    scaled: torch.Tensor = outputs["samples"]
    return scaled


def test_empty_latent_has_an_eighth_of_the_pixels() -> None:
    samples = LatentEmpty().execute({}, width=136, height=64, batch_size=3)["samples"]
    assert torch.equal(samples, torch.zeros(3, 4, 8, 17))


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic", "bislerp"])
def test_every_method_gives_the_size_in_cells(method: str) -> None:
    scaled = upscale(torch.full((2, 4, 8, 12), -1.5), 18, 5, method)
    assert scaled.shape == (2, 4, 5, 18)
    assert torch.allclose(scaled, torch.full_like(scaled, -1.5))


def test_bislerp_turns_between_orthogonal_vectors() -> None:
    samples = torch.zeros(1, 2, 1, 2)
    samples[0, 0, 0, 0] = 1.0
    samples[0, 1, 0, 1] = 3.0
    middle = upscale(samples, 4, 1, "bislerp")[0, :, 0]
    assert torch.allclose(middle[:, 0], torch.tensor([1.0, 0.0]))
    assert torch.allclose(middle[:, 3], torch.tensor([0.0, 3.0]), atol=1e-6)
    angle = torch.tensor(torch.pi / 2 * 0.25)
    assert torch.allclose(middle[:, 1], 1.5 * torch.stack((angle.cos(), angle.sin())))


def test_bislerp_mixes_opposite_and_zero_vectors_without_holes() -> None:
    samples = torch.tensor([[1.0, -1.0, 0.0, 2.0]]).reshape(1, 1, 1, 4)
    scaled = upscale(samples, 8, 1, "bislerp")[0, 0, 0]
    assert scaled.isfinite().all()
    assert scaled[2].item() == pytest.approx(-0.5)


def test_bislerp_of_the_same_size_changes_nothing() -> None:
    samples = torch.randn(1, 4, 6, 5, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(upscale(samples, 5, 6, "bislerp"), samples)


def test_center_crop_cuts_to_the_ratio() -> None:
    samples = torch.zeros(1, 4, 8, 16)
    samples[..., 4:12] = 1.0
    assert torch.equal(upscale(samples, 8, 8, "area", "center"), torch.ones(1, 4, 8, 8))


@pytest.mark.parametrize(
    ("recorded", "width", "height", "method"),
    [("by_area", 18, 12, "area"), ("by_bicubic", 18, 12, "bicubic"), ("width0", 24, 16, "bilinear")],
)
def test_scaled_latent_is_that_of_comfyui(recorded: str, width: int, height: int, method: str) -> None:
    data = Path(__file__).parent / "data"
    samples = load_file(data / "latent_input_flipped.safetensors")["latent_tensor"].flip(3)
    expected = load_file(data / f"latent_upscale_{recorded}.safetensors")["latent_tensor"]
    assert equals_recorded(upscale(samples, width, height, method), expected)


def save(directory: Path, samples: torch.Tensor, metadata: dict[str, str]) -> str:
    outputs = LatentSave().execute({}, samples=samples, directory=str(directory), stem="s", metadata=metadata)
    (file,) = outputs["files"]
    return str(file)


def test_saved_latent_comes_back_equal(tmp_path: Path) -> None:
    samples = torch.randn(2, 4, 8, 8).permute(0, 1, 3, 2)
    file = save(tmp_path, samples, {})
    assert file == str(tmp_path / "s_0.part")
    assert torch.equal(LatentLoad().execute({}, file=FileRef(file))["samples"], samples)


def test_saved_latent_carries_the_texts_and_the_format_mark(tmp_path: Path) -> None:
    file = save(tmp_path / "new", torch.zeros(1, 4, 2, 2), {"prompt": "{}", "workflow": "[1]"})
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"prompt": "{}", "workflow": "[1]"}
        assert set(opened.keys()) == {"latent_tensor", "latent_format_version_0"}
        assert opened.get_tensor("latent_format_version_0").numel() == 0


def test_file_without_the_format_mark_is_in_the_old_units(tmp_path: Path) -> None:
    save_file({"latent_tensor": torch.full((1, 4, 2, 2), 0.18215, dtype=torch.float16)}, tmp_path / "old")
    samples = LatentLoad().execute({}, file=FileRef(str(tmp_path / "old")))["samples"]
    assert samples.dtype == torch.float32
    assert torch.allclose(samples, torch.ones(1, 4, 2, 2), atol=1e-3)


def test_file_that_is_no_latent_is_the_prompts_fault(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"nothing of the kind")
    save_file({"other": torch.zeros(1)}, tmp_path / "other")
    for name, words in (
        ("bad", "cannot read latent"),
        ("none", "cannot read latent"),
        ("other", "has no tensor"),
    ):
        with pytest.raises(PromptError, match=words):
            LatentLoad().execute({}, file=FileRef(str(tmp_path / name)))


@pytest.mark.parametrize("shape", [(3,), (0, 4, 8, 8), (1, 4, 0, 8), (1, 4, 1, 8, 8), ()])
def test_a_latent_that_is_no_pictures_latent_is_refused_with_its_shape(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    save_file({"latent_tensor": torch.zeros(shape)}, tmp_path / "odd")
    with pytest.raises(PromptError, match="'odd' holds a latent of shape"):
        LatentLoad().execute({}, file=FileRef(str(tmp_path / "odd")))


def test_a_truncated_latent_is_refused(tmp_path: Path) -> None:
    save_file({"latent_tensor": torch.zeros(1, 4, 2, 2)}, tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-4])
    with pytest.raises(PromptError, match=r"cannot read latent 'cut': .*truncated"):
        LatentLoad().execute({}, file=FileRef(str(tmp_path / "cut")))


def composite(to: torch.Tensor, given: torch.Tensor, x: int = 0, y: int = 0, feather: int = 0) -> torch.Tensor:
    outputs = LatentComposite().execute({}, samples_to=to, samples_from=given, x=x, y=y, feather=feather)
    samples: torch.Tensor = outputs["samples"]
    return samples


def test_latent_is_put_on_another_where_it_is_asked_for_and_cut_at_the_border() -> None:
    to = torch.zeros(2, 4, 6, 8)
    expected = to.clone()
    expected[:, :, 4:, 5:] = 1.0
    assert torch.equal(composite(to, torch.ones(1, 4, 5, 5), x=5, y=4), expected)
    assert to.max() == 0.0


def test_latent_beyond_the_border_changes_nothing() -> None:
    to = torch.randn(1, 4, 3, 3)
    assert torch.equal(composite(to, torch.ones(1, 4, 2, 2), x=3, feather=1), to)


def test_feathered_latent_fades_on_the_borders_that_lie_inside() -> None:
    inside = composite(torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 6, 4), x=2, y=0, feather=2)[0, 0]
    assert inside[0].tolist() == [0, 0, 0.5, 1, 1, 0.5, 0, 0]
    assert inside[:, 3].tolist() == [1, 1, 1, 1, 1, 0.5, 0, 0]
    corner = composite(torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4), x=2, y=2, feather=2)[0, 0]
    assert corner[2:, 2:].tolist() == [[0.25, 0.5], [0.5, 1.0]]


def test_feather_mixes_with_what_lies_below() -> None:
    mixed = composite(torch.full((1, 1, 1, 4), 4.0), torch.full((1, 1, 1, 3), 8.0), x=1, feather=4)
    assert mixed[0, 0, 0].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("shape", [(2, 4, 2, 2), (1, 16, 2, 2)])
def test_latents_that_do_not_fit_are_the_prompts_fault(shape: tuple[int, ...]) -> None:
    with pytest.raises(PromptError, match="cannot be put on one of shape"):
        composite(torch.zeros(1, 4, 8, 8), torch.zeros(shape))


def batch(count: int) -> torch.Tensor:
    return torch.arange(float(count)).reshape(-1, 1, 1, 1).expand(count, 4, 2, 2)


def test_repeated_batch_follows_itself_with_its_masks() -> None:
    outputs = LatentRepeat().execute({}, samples=batch(2), noise_mask=batch(2)[:, 0], amount=3)
    assert outputs["samples"][:, 0, 0, 0].tolist() == [0, 1, 0, 1, 0, 1]
    assert outputs["noise_mask"].shape == (6, 1, 2, 2)
    assert outputs["noise_mask"][:, 0, 0, 0].tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("mask", [None, torch.ones(1, 2, 2)])
def test_one_mask_for_a_whole_batch_stays_one(mask: torch.Tensor | None) -> None:
    repeated = LatentRepeat().execute({}, samples=batch(2), noise_mask=mask, amount=3)["noise_mask"]
    taken = LatentSlice().execute({}, samples=batch(3), noise_mask=mask, start=1, length=2)["noise_mask"]
    for found in (repeated, taken):
        assert found is None if mask is None else torch.equal(found, torch.ones(1, 1, 2, 2))


def test_items_are_taken_with_the_masks_that_are_theirs() -> None:
    outputs = LatentSlice().execute({}, samples=batch(5), noise_mask=batch(2)[:, 0], start=1, length=3)
    assert outputs["samples"][:, 0, 0, 0].tolist() == [1, 2, 3]
    assert outputs["noise_mask"][:, 0, 0, 0].tolist() == [1, 0, 1]
