"""Models that nodes save, on a real server: what is in the files, and that they give what was saved."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from comfyserverless.core.values import FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.pool import ModelPool
from tests.support.client import Client
from tests.support.server import RunningServer


async def test_saved_models_give_what_their_handles_gave(server: RunningServer, tiny_models: Path) -> None:
    graph: dict[str, dict[str, object]] = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15_tiny.safetensors"}},
        "2": {
            "class_type": "LoraLoaderModelOnly",
            "inputs": {
                "model": ["1", 0],
                "lora_name": "sd15_style_tiny.safetensors",
                "strength_model": 0.8,
            },
        },
        "3": {"class_type": "ModelSave", "inputs": {"model": ["2", 0], "filename_prefix": "saved/net"}},
        "4": {"class_type": "VAESave", "inputs": {"vae": ["1", 2], "filename_prefix": "saved/vae"}},
    }
    merged = {"model1": ["1", 0], "model2": ["2", 0], "ratio": 0.25}
    graph["5"] = {"class_type": "ModelMergeSimple", "inputs": merged}
    graph["6"] = {"class_type": "ModelSave", "inputs": {"model": ["5", 0], "filename_prefix": "saved/mix"}}
    async with Client(server.url) as client:
        run = await client.run(graph)
    assert run.outcome == "execution_success", run.messages[-3:]
    network = server.folder("output") / "saved" / "net_00001_.safetensors"
    vae = server.folder("output") / "saved" / "vae_00001_.safetensors"
    with safe_open(network, "pt") as file:
        assert set(file.metadata()) == {"prompt"}
        assert all(name.startswith("model.diffusion_model.") for name in file.keys())  # noqa: SIM118
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118

    pool = ModelPool()
    file = FileRef(str(tiny_models / "checkpoints" / "sd15_tiny.safetensors"))
    lora = LoraRef(FileRef(str(tiny_models / "loras" / "sd15_style_tiny.safetensors")), 0.8)
    x, timesteps, context = torch.ones(1, 4, 8, 8), torch.tensor([500.0]), torch.ones(1, 77, 128)
    plain, wanted, found = (
        pool.diffusion(ref).predict(x, timesteps, context)
        for ref in (ModelRef(file), ModelRef(file, (lora,)), ModelRef(FileRef(str(network))))
    )
    # Numbers of the file have eleven bits, those of the handle have all.
    assert (found - wanted).abs().max() < 0.05 * (plain - wanted).abs().max()
    original = load_file(file.path)
    changed, mixed = load_file(network), load_file(network.with_name("mix_00001_.safetensors"))
    assert changed.keys() == mixed.keys()
    names = [name for name, tensor in changed.items() if not torch.equal(tensor, original[name])]
    assert 0 < len(names) < len(changed)
    for name in changed:
        mean = 0.25 * original[name].float() + 0.75 * changed[name].float()
        torch.testing.assert_close(mixed[name].float(), mean, rtol=2e-3, atol=1e-4)
    decoded = [pool.vae(VaeRef(each)).decode(x) for each in (file, FileRef(str(vae)))]
    assert torch.equal(*decoded)
