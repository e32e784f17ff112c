"""Stand for a VAE (`comfy.sd.VAE`): pictures are encoded and decoded on the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core import values
from comfyserverless.core.values import VaeRef
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.library.calls import run_node
from comfyserverless.host.models.origins import file_of
from comfyserverless.host.models.weights import all_weights

_CPU = torch.device("cpu")
_PREFIX = "first_stage_model."
_CELL_PX = 8
_TILE_CELLS, _OVERLAP_CELLS = 64, 16
_TILE_PX, _OVERLAP_PX = 512, 64
_BYTES_PER_PIXEL = 2178 * 2


class RemoteAutoencoder:
    """Stand where the network of a VAE would be; its layers are on the workers."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"comfyserverless has no first_stage_model.{name} here: autoencoders run on the workers", name=name
        )


class VaePatcher:
    """What packs find under `VAE.patcher`."""

    def __init__(self, vae: VAE) -> None:
        self._vae = vae
        self.load_device = self.offload_device = _CPU
        self.model = vae.first_stage_model
        self.model_options: dict[str, Any] = {"transformer_options": {}}

    def model_size(self) -> int:
        """Return the bytes of the file."""
        return self._vae.ref.file.size_bytes

    def clone(self) -> VaePatcher:
        """Return itself: nothing of it can change."""
        return self

    def is_clone(self, other: Any) -> bool:
        """Tell whether another one is of the same file."""
        return getattr(getattr(other, "_vae", None), "ref", None) == self._vae.ref


class VAE:
    """An autoencoder of a file."""

    def __init__(
        self,
        sd: Mapping[str, Any] | None = None,
        device: Any = None,
        config: Any = None,
        dtype: Any = None,
        metadata: Any = None,
    ) -> None:
        if sd is None:
            refuse("comfy.sd.VAE() without weights")
        self._begin(VaeRef(file_of(sd)))

    def _begin(self, ref: VaeRef) -> None:
        self.ref = ref
        self.first_stage_model: Any = RemoteAutoencoder()
        self.patcher: Any = VaePatcher(self)
        self.device = self.output_device = _CPU
        self.vae_dtype = torch.float32
        self.working_dtypes = [torch.float32]
        self.latent_channels, self.latent_dim, self.output_channels = 4, 2, 3
        self.downscale_ratio: Any = _CELL_PX
        self.upscale_ratio: Any = _CELL_PX
        self.not_video = True
        self.disable_offload = False
        self.size: int | None = None
        self.extra_1d_channel: int | None = None
        self.crop_input = True

    @classmethod
    def of(cls, ref: VaeRef) -> VAE:
        """Return the object for a handle."""
        made = cls.__new__(cls)
        made._begin(ref)
        return made

    def to_ref(self) -> VaeRef:
        """Return the handle."""
        return self.ref

    def throw_exception_if_invalid(self) -> None:
        """Do nothing: a file that holds no autoencoder is an error of the worker that reads it."""

    def decode(self, samples_in: Tensor, vae_options: Any = None) -> Tensor:
        """Decode a latent [B, C, h, w] to pictures [B, H, W, 3] in 0..1."""
        pictures: Tensor = run_node("VAEDecode", samples={"samples": samples_in}, vae=self)[0]
        return pictures

    def encode(self, pixel_samples: Tensor) -> Tensor:
        """Encode pictures [B, H, W, 3] to a latent [B, C, h, w]."""
        latent: Tensor = run_node("VAEEncode", pixels=pixel_samples, vae=self)[0]["samples"]
        return latent

    def decode_tiled(
        self,
        samples: Tensor,
        tile_x: int | None = None,
        tile_y: int | None = None,
        overlap: int | None = None,
        tile_t: int | None = None,
        overlap_t: int | None = None,
    ) -> Tensor:
        """Decode in tiles; sizes are in cells, and a tile is a square of its smaller side."""
        cells = min(each for each in (tile_x or _TILE_CELLS, tile_y or _TILE_CELLS))
        pictures: Tensor = run_node(
            "VAEDecodeTiled",
            samples={"samples": samples},
            vae=self,
            tile_size=max(64, cells * _CELL_PX),
            overlap=(_OVERLAP_CELLS if overlap is None else overlap) * _CELL_PX,
            temporal_size=64,
            temporal_overlap=8,
        )[0]
        return pictures

    def encode_tiled(
        self,
        pixel_samples: Tensor,
        tile_x: int | None = None,
        tile_y: int | None = None,
        overlap: int | None = None,
        tile_t: int | None = None,
        overlap_t: int | None = None,
    ) -> Tensor:
        """Encode in tiles; sizes are in pixels, and a tile is a square of its smaller side."""
        latent: Tensor = run_node(
            "VAEEncodeTiled",
            pixels=pixel_samples,
            vae=self,
            tile_size=max(64, min(tile_x or _TILE_PX, tile_y or _TILE_PX)),
            overlap=_OVERLAP_PX if overlap is None else overlap,
            temporal_size=64,
            temporal_overlap=8,
        )[0]["samples"]
        return latent

    def decode_tiled_(self, samples: Tensor, tile_x: int = 64, tile_y: int = 64, overlap: int = 16) -> Tensor:
        """Decode in tiles to channel-first pictures."""
        return self.decode_tiled(samples, tile_x, tile_y, overlap).movedim(-1, 1)

    def encode_tiled_(
        self, pixel_samples: Tensor, tile_x: int = 512, tile_y: int = 512, overlap: int = 64
    ) -> Tensor:
        """Encode channel-first pictures in tiles."""
        return self.encode_tiled(pixel_samples.movedim(1, -1), tile_x, tile_y, overlap)

    def vae_encode_crop_pixels(self, pixels: Tensor) -> Tensor:
        """Cut pictures around their middle to whole cells."""
        height, width = (side // _CELL_PX * _CELL_PX for side in pixels.shape[1:3])
        top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
        return pixels[:, top : top + height, left : left + width, :]

    def process_input(self, image: Tensor) -> Tensor:
        """Return pictures as the network sees them: -1..1."""
        return image * 2.0 - 1.0

    def process_output(self, image: Tensor) -> Tensor:
        """Return what the network gives as pictures: 0..1."""
        return torch.clamp((image + 1.0) / 2.0, min=0.0, max=1.0)

    def memory_used_encode(self, shape: Any, dtype: Any) -> int:
        """Estimate the bytes of encoding pictures [B, 3, H, W]."""
        return int(_BYTES_PER_PIXEL * shape[-2] * shape[-1])

    def memory_used_decode(self, shape: Any, dtype: Any) -> int:
        """Estimate the bytes of decoding a latent [B, C, h, w]."""
        return int(_BYTES_PER_PIXEL * shape[-2] * shape[-1] * _CELL_PX**2)

    def spacial_compression_encode(self) -> int:
        """Return the pixels of a cell's side."""
        return _CELL_PX

    spacial_compression_decode = spacial_compression_encode

    def temporal_compression_decode(self) -> None:
        """Return None: pictures have no time."""

    def get_sd(self) -> dict[str, Tensor]:
        """Read the autoencoder's weights."""
        weights = all_weights(self.ref.file)
        inner = {
            name.removeprefix(_PREFIX): value for name, value in weights.items() if name.startswith(_PREFIX)
        }
        return inner or weights

    def is_dynamic(self) -> bool:
        """Tell that weights are managed elsewhere."""
        return False

    def __reduce__(self) -> Any:
        return _from_bytes, (values.encode(self.ref),)


def _from_bytes(data: bytes) -> VAE:
    return VAE.of(values.decode(data))
