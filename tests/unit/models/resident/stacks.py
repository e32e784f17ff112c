"""A stack of equal linear layers in a file, with the real parts that load and run it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.models.resident.skeleton import Runner, steps_of
from comfyserverless.models.resident.transfer import Block, Transfer
from comfyserverless.residency.policy import LayerKey, PolicyName
from tests.unit.models.files import write_file

WIDTH = 16
LAYER_BYTES = (WIDTH * WIDTH + WIDTH) * 4


class HeldTransfer(Transfer):
    """Deliver nothing before the gate is opened."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.gate = threading.Event()

    def deliver(self, key: LayerKey, size_bytes: int, read: Callable[[Tensor], None]) -> Block:
        assert self.gate.wait(60)
        return super().deliver(key, size_bytes, read)


class Stack:
    """Several files of one structure, run by one keeper with room for `room` layers."""

    def __init__(
        self,
        folder: Path,
        room: float,
        layers: int = 4,
        policy: PolicyName = "layers",
        transfer: Transfer | None = None,
    ) -> None:
        self.folder = folder
        self.layers = layers
        transfer = transfer or Transfer(torch.device("cpu"))
        self.keeper = Keeper(transfer, int(room * LAYER_BYTES), policy)
        self.residence = Residence(self.keeper)

    def write(self, name: str, seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for at in range(self.layers):
            tensors[f"{at}.weight"] = torch.randn(WIDTH, WIDTH, generator=generator) / 4
            tensors[f"{at}.bias"] = torch.randn(WIDTH, generator=generator)
        write_file(self.folder / name, tensors)
        return tensors

    def runner(self, name: str) -> Runner[nn.Sequential]:
        def build() -> nn.Sequential:
            return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(self.layers)))

        weights = open_weights(str(self.folder / name))
        skeleton = self.residence.skeletons.take("stack", {"layers": self.layers}, build)
        order: Sequence[Sequence[str]] = ((), *((str(at),) for at in range(1, self.layers)))
        base = self.residence.register(
            "stack", self.residence.recipes(skeleton, weights, {key: key for key in weights}), order
        )
        return Runner(self.keeper, skeleton, base, steps_of(order))


def run(runner: Runner[nn.Sequential], x: Tensor) -> Tensor:
    with torch.inference_mode(), runner.running() as module:
        output: Tensor = module(x)
    return output


def expect(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    for at in range(len(tensors) // 2):
        x = torch.nn.functional.linear(x, tensors[f"{at}.weight"], tensors[f"{at}.bias"])
    return x


def present(stack: Stack, model: ResidentModel) -> list[int]:
    return stack.keeper.present(model)
