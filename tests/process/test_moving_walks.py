"""Take the walk of every sampler to another real worker at random step boundaries: the bits are the same."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from comfyserverless.core.samplers import SAMPLER_NAMES
from comfyserverless.core.values import ClipRef, FileRef, ModelRef, Output, Value, replace_outputs, select
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext
from tests.support.link_server import WorkerLink, serve_links
from tests.support.zygote import run_zygote, shared_memory_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS = 3
SEED = 5


@dataclass
class Pair:
    """Two real workers that read each other's arenas, and a reader of both."""

    links: tuple[WorkerLink, WorkerLink]
    store: TensorStore
    serials: Iterator[int]


@dataclass
class Walker(FakeContext):
    """A lowering context that runs what is emitted, in order, on the first worker or where `draw` says."""

    pair: Pair = field(kw_only=True)
    draw: random.Random | None = field(kw_only=True, default=None)
    done: dict[InvocationId, Mapping[str, Value]] = field(default_factory=dict)
    #: which worker ran each call that came before the walk's end.
    places: list[int] = field(default_factory=list)

    async def result(self, output: Output) -> Value:
        """Run what has to be run for a result."""
        await self.run()
        return self.resolve(output)

    def resolve(self, output: Output) -> Value:
        """Return what a symbol stands for."""
        return select(self.done[output.invocation][output.port], output.path)

    async def run(self) -> None:
        """Run all calls that have not run."""
        for call in self.calls[len(self.done) :]:
            place = 0 if self.draw is None else self.draw.randrange(2)
            inputs = {name: replace_outputs(value, self.resolve) for name, value in call.inputs.items()}
            lane = BUILTIN_FUNCTIONS[call.function].lane
            name = f"i{next(self.pair.serials)}"
            self.done[call.id] = await self.pair.links[place].run(name, call.function, lane, **inputs)
            self.places.append(place)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    paths = {name: shared_memory_path(name) for name in ("w0.0", "w1.0", "me")}
    folder = tmp_path_factory.mktemp("walks")
    try:
        async with serve_links(folder / "link") as server, run_zygote() as zygote:
            links = []
            for name in ("w0.0", "w1.0"):
                await zygote.spawn(name, server.address, paths[name])
                links.append(await server.joined(name))
            store = TensorStore(WorkerId("me"), SharedMemoryArena(str(paths["me"]), 1 << 20))
            for name in ("w0.0", "w1.0"):
                store.add_peer(WorkerId(name), str(paths[name]))
            for link, peer in zip(links, ("w1.0", "w0.0"), strict=True):
                size_bytes = paths[peer].stat().st_size
                await link.send(wire.PeerArena(WorkerId(peer), str(paths[peer]), size_bytes))
            yield Pair((links[0], links[1]), store, iter(range(1_000_000)))
            for link in links:
                await link.send(wire.Shutdown())
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


async def walk(
    pair: Pair, models: Path, sampler: str, draw: random.Random | None
) -> tuple[torch.Tensor, list[int]]:
    """Sample with KSampler; returns the latent and where each call ran."""
    file = FileRef(str(models / "checkpoints" / "sd15_tiny.safetensors"))
    context = Walker(pair=pair, draw=draw)

    async def lowered(name: str, **inputs: Any) -> Value:
        declaration = BUILTIN.get(name)
        assert declaration is not None
        return (await declaration.lower(context, inputs)).outputs[0]

    text = await lowered("CLIPTextEncode", clip=ClipRef((file,)), text="a red circle")
    latent = await lowered("EmptyLatentImage", width=64, height=64, batch_size=1)
    sampled = await lowered(
        "KSampler",
        model=ModelRef(file),
        positive=text,
        negative=text,
        latent_image=latent,
        seed=SEED,
        steps=STEPS,
        cfg=4.0,
        sampler_name=sampler,
        scheduler="karras",
        denoise=1.0,
    )
    await context.run()
    return pair.store.get(replace_outputs(sampled, context.resolve)["samples"]).clone(), context.places


@pytest.mark.parametrize("sampler", SAMPLER_NAMES)
async def test_walk_that_moves_between_workers_has_the_same_bits(
    pair: Pair, tiny_models: Path, sampler: str
) -> None:
    stayed, _ = await walk(pair, tiny_models, sampler, None)
    draw = random.Random(sampler)
    moved, places = await walk(pair, tiny_models, sampler, draw)
    assert set(places) == {0, 1}
    assert torch.equal(stayed, moved)
    assert stayed.isfinite().all()
