"""Upscale models: three namings of one network, its factors, its memory, and other architectures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import UpscaleRef
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.models.upscaling.rrdb import Rrdb, RrdbLayout
from comfyserverless.models.upscaling.upscaler import Upscaler
from tests.unit.models.files import write_file

Tensors = dict[str, Tensor]
PICTURE = torch.rand(1, 3, 6, 8, generator=torch.Generator().manual_seed(3))


def brighten(module: Rrdb, by: float) -> None:
    bias = module.conv_last.bias
    assert bias is not None
    bias += by


def network(doublings: int = 2, unshuffle: int = 1, blocks: int = 2) -> Rrdb:
    layout = RrdbLayout(3 * unshuffle**2, 3, 8, 4, blocks, doublings, unshuffle)
    torch.manual_seed(7)
    module = Rrdb(layout).eval().requires_grad_(False)
    brighten(module, 0.5)
    return module


def modern(module: Rrdb) -> Tensors:
    """Return the tensors in the naming of Real-ESRGAN."""
    found = {}
    for name, tensor in module.state_dict().items():
        up, _, rest = name.removeprefix("conv_up.").partition(".")
        found[f"conv_up{int(up) + 1}.{rest}" if name.startswith("conv_up.") else name] = tensor
    return found


def middle(tensors: Tensors) -> Tensors:
    """Return modern names as BSRGAN has them."""
    words = (
        ("body.", "RRDB_trunk."),
        ("rdb", "RDB"),
        ("conv_body", "trunk_conv"),
        ("conv_up", "upconv"),
        ("conv_hr", "HRconv"),
    )
    found = {}
    for name, tensor in tensors.items():
        changed = name
        for new, old in words:
            changed = changed.replace(new, old) if new != "body." else changed.replace(new, old, 1)
        found[changed.replace("conv_RRDB_trunk.", "trunk_conv.")] = tensor
    return found


def old(tensors: Tensors, blocks: int, doublings: int) -> Tensors:
    """Return modern names as the first release has them."""
    stems = {"conv_first": "model.0", "conv_body": f"model.1.sub.{blocks}"}
    stems |= {f"conv_up{at + 1}": f"model.{3 + 3 * at}" for at in range(doublings)}
    stems |= {"conv_hr": f"model.{2 + 3 * doublings}", "conv_last": f"model.{4 + 3 * doublings}"}
    found = {}
    for name, tensor in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if stem not in stems:
            _, block, dense, convolution = stem.split(".")
            stem = f"model.1.sub.{block}.{dense.upper()}.{convolution}.0"
        found[f"{stems.get(stem, stem)}.{leaf}"] = tensor
    return found


def upscaler(folder: Path, tensors: Tensors, pool: ModelPool | None = None) -> Upscaler:
    file = write_file(folder / "up.safetensors", {name: each.contiguous() for name, each in tensors.items()})
    return (pool or ModelPool()).upscaler(UpscaleRef(file))


@pytest.mark.parametrize("naming", ["modern", "middle", "old", "nested"])
def test_all_namings_give_the_picture_of_the_network(tmp_path: Path, naming: str) -> None:
    module = network()
    tensors = modern(module)
    if naming == "nested":
        tensors = {f"params_ema.{name}": tensor for name, tensor in tensors.items()}
    elif naming == "middle":
        tensors = middle(tensors)
    elif naming == "old":
        tensors = old(tensors, blocks=2, doublings=2)
    loaded = upscaler(tmp_path, tensors)
    assert (loaded.scale, loaded.channels) == (4, 3)
    assert torch.equal(loaded.upscale(PICTURE), module(PICTURE).clamp(0, 1))


@pytest.mark.parametrize(
    ("doublings", "unshuffle", "scale"), [(0, 1, 1), (1, 1, 2), (3, 1, 8), (2, 2, 2), (2, 4, 1)]
)
@pytest.mark.parametrize("naming", ["modern", "old"])
def test_factors(tmp_path: Path, naming: str, doublings: int, unshuffle: int, scale: int) -> None:
    tensors = modern(network(doublings, unshuffle, blocks=1))
    loaded = upscaler(tmp_path, tensors if naming == "modern" else old(tensors, 1, doublings))
    assert (loaded.scale, loaded.channels) == (scale, 3)
    made = loaded.upscale(PICTURE[..., :5, :7])
    assert made.shape == (1, 3, 5 * scale, 7 * scale)
    assert made.std() > 0
    assert 0 <= made.min() <= made.max() <= 1


def test_values_beyond_black_and_white_are_cut_off(tmp_path: Path) -> None:
    module = network()
    brighten(module, 10)
    assert torch.equal(upscaler(tmp_path, modern(module)).upscale(PICTURE), torch.ones(1, 3, 24, 32))


def test_layers_come_and_go_within_a_budget(tmp_path: Path) -> None:
    module = network(blocks=4)
    whole_bytes = sum(each.nbytes for each in module.parameters())
    pool = ModelPool(options=PoolOptions(device_bytes=whole_bytes // 2))
    loaded = upscaler(tmp_path, modern(module), pool)
    assert len(loaded.residents[0].layers) == 6
    for _ in range(2):
        assert torch.equal(loaded.upscale(PICTURE), module(PICTURE).clamp(0, 1))
        assert 0 < pool.weights_bytes <= whole_bytes // 2


class LittleMemory(Upscaler):
    """An upscaler on a device that holds pictures of so many pixels."""

    limit_px = 0

    def _run(self, pictures: Tensor) -> Tensor:
        if pictures.shape[2] * pictures.shape[3] > self.limit_px:
            raise torch.OutOfMemoryError
        return pictures[..., :1].expand_as(pictures).clone()


def test_what_does_not_fit_into_memory_goes_through_it_in_smaller_tiles(tmp_path: Path) -> None:
    loaded = upscaler(tmp_path, modern(network(0)))
    small = LittleMemory(loaded._runner, 1, 3)
    picture = torch.ones(1, 3, 300, 300) * 0.25
    small.limit_px = 128 * 128
    torch.testing.assert_close(small.upscale(picture), picture)
    small.limit_px = 127 * 127
    with pytest.raises(torch.OutOfMemoryError):
        small.upscale(picture)


def test_pictures_of_other_channels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"takes pictures of 3 channels, got shape \[1, 1, 6, 8\]"):
        upscaler(tmp_path, modern(network())).upscale(PICTURE[:, :1])


def test_a_network_of_odd_channels_is_refused(tmp_path: Path) -> None:
    tensors = modern(network(0, 2))
    with pytest.raises(ModelFileError, match=r"up\.safetensors: this ESRGAN takes 12 channels and gives 3"):
        upscaler(tmp_path, tensors)


def test_other_architectures_need_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spandrel", None)
    with pytest.raises(ModelFileError, match=r"up\.safetensors: .*install comfyserverless\[upscale\]"):
        upscaler(tmp_path, {"body.0.weight": torch.ones(1)})


def compact() -> Tensors:
    """Return the tensors of a small network of another architecture: convolutions, then shuffled pixels."""
    torch.manual_seed(11)
    tensors = {"body.0.weight": torch.randn(8, 3, 3, 3) * 0.2, "body.0.bias": torch.zeros(8)}
    tensors |= {"body.1.weight": torch.full((8,), 0.1)}
    tensors |= {"body.2.weight": torch.randn(8, 8, 3, 3) * 0.2, "body.2.bias": torch.zeros(8)}
    tensors |= {"body.3.weight": torch.full((8,), 0.1)}
    return tensors | {"body.4.weight": torch.randn(12, 8, 3, 3) * 0.2, "body.4.bias": torch.zeros(12)}


def test_other_architectures_run_with_the_package_within_a_budget(tmp_path: Path) -> None:
    spandrel = pytest.importorskip("spandrel")
    tensors = compact()
    expected = spandrel.ModelLoader().load_from_state_dict(dict(tensors))(PICTURE)
    pool = ModelPool(options=PoolOptions(device_bytes=sum(each.nbytes for each in tensors.values())))
    loaded = upscaler(tmp_path, tensors, pool)
    assert (loaded.scale, loaded.channels) == (2, 3)
    for _ in range(2):
        torch.testing.assert_close(loaded.upscale(PICTURE), expected)
        pool.keeper.free_all()
        assert pool.weights_bytes == 0
    with pytest.raises(ModelFileError, match="no upscale model that spandrel knows"):
        upscaler(tmp_path, {"nothing": torch.ones(1)})


@pytest.mark.parametrize(("doublings", "unshuffle"), [(2, 1), (2, 2), (2, 4)])
def test_the_network_equals_that_of_the_package(tmp_path: Path, doublings: int, unshuffle: int) -> None:
    spandrel = pytest.importorskip("spandrel")
    layout = RrdbLayout(3 * unshuffle**2, 3, 8, 32, 1, doublings, unshuffle)
    torch.manual_seed(7)
    module = Rrdb(layout).eval().requires_grad_(False)
    brighten(module, 0.5)
    expected = spandrel.ModelLoader().load_from_state_dict(modern(module))(PICTURE[..., :5, :7])
    got = upscaler(tmp_path, modern(module)).upscale(PICTURE[..., :5, :7])
    torch.testing.assert_close(got, expected)
