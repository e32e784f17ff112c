"""Hand pictures and latents to the nodes that encode and decode them, in ComfyUI's shapes and units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core.values import FileRef, UpscaleRef, VaeRef
from comfyserverless.host import bridge
from comfyserverless.host.encoders.autoencoder import VAE
from comfyserverless.host.encoders.upscaler import UpscaleModel
from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.models import scratch

REF = VaeRef(FileRef("/v"))


class Nodes(bridge.Offline):
    """A bridge whose nodes make pictures twice as large."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []

    def ask(self, kind: str, payload: Any) -> Any:
        self.asked.append(payload)
        if payload["class_type"].startswith("VAEEncode"):
            return [{"samples": torch.zeros(1, 4, 2, 2)}]
        image = payload["inputs"].get("image", torch.zeros(1, 2, 2, 3))
        return [image.repeat(1, 2, 2, 1)]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()
    monkeypatch.setattr(bridge, "_bridge", made)
    return made


def test_latents_and_pictures_go_through_the_nodes(nodes: Nodes) -> None:
    vae = VAE.of(REF)
    assert vae.encode(torch.zeros(1, 16, 16, 3)).shape == (1, 4, 2, 2)
    assert vae.decode(torch.zeros(1, 4, 2, 2)).shape[-1] == 3
    assert [each["class_type"] for each in nodes.asked] == ["VAEEncode", "VAEDecode"]
    assert nodes.asked[0]["inputs"]["vae"] is vae


def test_tiles_are_given_in_cells_or_pixels_as_comfyui_has_them(nodes: Nodes) -> None:
    vae = VAE.of(REF)
    vae.decode_tiled(torch.zeros(1, 4, 2, 2), tile_x=32, tile_y=48, overlap=4)
    vae.encode_tiled(torch.zeros(1, 16, 16, 3), tile_x=512, tile_y=256)
    sizes = [(each["inputs"]["tile_size"], each["inputs"]["overlap"]) for each in nodes.asked]
    assert sizes == [(256, 32), (256, 64)]


def test_autoencoder_of_tensors_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_folders", [tmp_path])
    vae = VAE(sd={"decoder.x": torch.ones(2)})
    vae.throw_exception_if_invalid()
    assert Path(vae.to_ref().file.path).parent == tmp_path
    assert list(vae.get_sd()) == ["decoder.x"]
    with pytest.raises(NotSupportedError, match=r"comfy\.sd\.VAE"):
        VAE()


def test_pictures_are_cut_to_whole_cells_around_their_middle() -> None:
    cut = VAE.of(REF).vae_encode_crop_pixels(torch.arange(11.0).reshape(1, 1, 11, 1).expand(1, 8, 11, 3))
    assert cut[0, 0, :, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_upscaler_is_called_with_channels_first_and_knows_its_scale(nodes: Nodes) -> None:
    upscaler = UpscaleModel.of(UpscaleRef(FileRef("/u")))
    assert upscaler.model(torch.zeros(1, 3, 4, 6)).shape == (1, 3, 8, 12)
    assert upscaler.scale == upscaler.scale == 2
    assert len(nodes.asked) == 2
