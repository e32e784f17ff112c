"""Layers of files: how parameters are divided, read and bound."""

from __future__ import annotations

from pathlib import Path

import torch

from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.resident.blocks import ALIGN_BYTES, allocate, place
from comfyserverless.models.resident.layers import Recipe, split_layers
from comfyserverless.models.resident.transfer import Transfer
from tests.unit.models.files import write_file

CPU = torch.device("cpu")


def test_tensors_lie_apart_and_aligned_in_their_block() -> None:
    spots, size_bytes = place([((3,), torch.float16), ((5, 5), torch.float32), ((), torch.float64)])
    assert [spot.offset_bytes % ALIGN_BYTES for spot in spots] == [0, 0, 0]
    block = allocate(size_bytes)
    block.zero_()
    for number, spot in enumerate(spots):
        spot.view(block).fill_(number + 1)
    assert [spot.view(block).unique().tolist() for spot in spots] == [[1], [2], [3]]


def test_large_blocks_are_given_back_to_the_system() -> None:
    size_bytes = 64 << 20
    before = _mapped_bytes()
    block = allocate(size_bytes)
    assert _mapped_bytes() - before >= size_bytes
    view = block[:4]
    del block
    assert _mapped_bytes() - before >= size_bytes, "a view keeps all of it"
    del view
    assert _mapped_bytes() - before < size_bytes


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096


def test_the_innermost_listed_module_decides_and_the_rest_is_first(tmp_path: Path) -> None:
    names = ("conv.weight", "blocks.0.a.weight", "blocks.0.b.weight", "blocks.1.weight", "blocks.10.weight")
    weights = open_weights(write_file(tmp_path / "w", {name: torch.ones(2) for name in names}).path)
    recipes = {name: Recipe(weights, name, (2,), torch.float32) for name in names}
    order = ((), ("blocks.0",), ("blocks.0.b",), ("blocks.1", "blocks.10"))
    found = [list(layer.parameters) for layer in split_layers(recipes, order, CPU)]
    assert found == [
        ["conv.weight"],
        ["blocks.0.a.weight"],
        ["blocks.0.b.weight"],
        ["blocks.1.weight", "blocks.10.weight"],
    ]


def test_a_layer_is_read_cast_cut_and_turned_as_its_recipes_say(tmp_path: Path) -> None:
    tensors = {"half": torch.randn(4, 3).half(), "fused": torch.randn(6, 2), "turned": torch.randn(2, 3)}
    weights = open_weights(write_file(tmp_path / "w", tensors).path)
    recipes = {
        "cast": Recipe(weights, "half", (4, 3), torch.float32),
        "cut": Recipe(weights, "fused", (2, 2), torch.float32, rows=(2, 4)),
        "turned": Recipe(weights, "turned", (3, 2), torch.float32, is_transposed=True),
        "cut cast": Recipe(weights, "fused", (1, 2), torch.float64, rows=(5, 6)),
    }
    (layer,) = split_layers(recipes, ((),), CPU)
    assert all(parameter.numel() == 0 for parameter in layer.parameters.values())
    layer.bind(layer.load(("m", 0), Transfer(CPU)))
    got = layer.parameters
    assert torch.equal(got["cast"], tensors["half"].float())
    assert torch.equal(got["cut"], tensors["fused"][2:4])
    assert torch.equal(got["turned"], tensors["turned"].T)
    assert torch.equal(got["cut cast"], tensors["fused"][5:6].double())
    layer.release()
    assert all(parameter.numel() == 0 for parameter in layer.parameters.values())


def test_pickled_files_are_read_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "w.ckpt"
    tensor = torch.randn(6, 2)
    torch.save({"fused": tensor}, path)
    weights = open_weights(str(path))
    (layer,) = split_layers({"cut": Recipe(weights, "fused", (2, 2), torch.float64, rows=(2, 4))}, ((),), CPU)
    layer.bind(layer.load(("m", 0), Transfer(CPU)))
    assert torch.equal(layer.parameters["cut"], tensor[2:4].double())


def test_an_emulated_link_is_no_faster_than_it_says(tmp_path: Path) -> None:
    import time

    weights = open_weights(write_file(tmp_path / "w", {"x": torch.ones(25_000)}).path)
    (layer,) = split_layers({"x": Recipe(weights, "x", (25_000,), torch.float32)}, ((),), CPU)
    begin_s = time.perf_counter()
    layer.load(("m", 0), Transfer(CPU, link_gbps=0.02))
    assert time.perf_counter() - begin_s >= 100_000 * 8 / 0.02e9
