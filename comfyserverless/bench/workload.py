"""Describe what both sides compute, and the graph that asks the server for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

POSITIVE = "a large red circle on a blue background"
NEGATIVE = ""
CFG = 5.0

#: Invocations of the graph besides its steps: two text.encode, latent.empty, sample.begin, sample.end,
#: vae.decode, image.save.
FIXED_INVOCATIONS = 7


@dataclass(frozen=True, slots=True)
class Workload:
    """One picture: text to image, Euler, the `normal` schedule, size_px x size_px; threads: of torch."""

    checkpoint: Path
    steps: int
    size_px: int
    threads: int

    def invocations(self) -> int:
        """Return how many model functions the server runs for one picture."""
        return self.steps + FIXED_INVOCATIONS

    def prompt(self, seed: int) -> dict[str, Any]:
        """Return the graph in API form."""
        sampling = {"sampler_name": "euler", "scheduler": "normal", "denoise": 1.0, "cfg": CFG}
        return {
            "1": _node("CheckpointLoaderSimple", ckpt_name=self.checkpoint.name),
            "2": _node("CLIPTextEncode", clip=["1", 1], text=POSITIVE),
            "3": _node("CLIPTextEncode", clip=["1", 1], text=NEGATIVE),
            "4": _node("EmptyLatentImage", width=self.size_px, height=self.size_px, batch_size=1),
            "5": _node(
                "KSampler",
                model=["1", 0],
                positive=["2", 0],
                negative=["3", 0],
                latent_image=["4", 0],
                seed=seed,
                steps=self.steps,
                **sampling,
            ),
            "6": _node("VAEDecode", samples=["5", 0], vae=["1", 2]),
            "7": _node("SaveImage", images=["6", 0], filename_prefix="bench"),
        }


def _node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}
