"""Build graphs that draw with the demo model, and have a server draw them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import numpy as np
from PIL import Image

from comfyserverless.demo.places import DEMO_CHECKPOINT
from comfyserverless.training.scenery.world import Picture
from tests.support.client import Client

GRAPHS = Path(__file__).parents[2] / "graphs"
DEMO_MODELS = Path(__file__).parents[2] / "comfyserverless" / "demo" / "models"

Graph = dict[str, Any]
Link = list[str | int]

CHECKPOINT_MODEL: Link = ["checkpoint", 0]
CHECKPOINT_CLIP: Link = ["checkpoint", 1]
CHECKPOINT_VAE: Link = ["checkpoint", 2]
POSITIVE: Link = ["positive", 0]
NEGATIVE: Link = ["negative", 0]
DECODED: Link = ["decode", 0]


def node(class_type: str, **inputs: Any) -> Graph:
    """Return a node of a graph in API form."""
    return {"class_type": class_type, "inputs": inputs}


@dataclass(frozen=True, slots=True)
class Sheet:
    """An empty canvas: its size in pixels (width, height), and how many pictures at once."""

    size_px: tuple[int, int] = (128, 128)
    count: int = 1

    def node(self) -> Graph:
        """Return the node that makes it."""
        return node("EmptyLatentImage", width=self.size_px[0], height=self.size_px[1], batch_size=self.count)


USUAL_SHEET = Sheet()


def text_graph(
    text: str, seed: int = 0, nodes: Mapping[str, Graph] = MappingProxyType({}), sheet: Sheet = USUAL_SHEET
) -> Graph:
    """Return a graph that draws a text: Euler, 20 steps, guidance 5.

    nodes: to add; where the graph has a node of that name, only its inputs are replaced, one by one.
    """
    usual = {
        "checkpoint": node("CheckpointLoaderSimple", ckpt_name=DEMO_CHECKPOINT),
        "positive": node("CLIPTextEncode", clip=CHECKPOINT_CLIP, text=text),
        "negative": node("CLIPTextEncode", clip=CHECKPOINT_CLIP, text=""),
        "canvas": sheet.node(),
        "sampler": node(
            "KSampler", model=CHECKPOINT_MODEL, positive=POSITIVE, negative=NEGATIVE,
            latent_image=["canvas", 0], seed=seed, steps=20, cfg=5, denoise=1,
            sampler_name="euler", scheduler="normal",
        ),
        "decode": node("VAEDecode", samples=["sampler", 0], vae=CHECKPOINT_VAE),
        "save": node("PreviewImage", images=DECODED),
    }  # fmt: skip
    changed = {
        name: node(each["class_type"], **usual.get(name, each)["inputs"] | each["inputs"])
        for name, each in nodes.items()
    }
    return usual | changed


async def draw(url: str, *graphs: Graph) -> list[Picture]:
    """Return all pictures of the graphs, in order; raises AssertionError when one fails."""
    pictures = []
    async with Client(url) as client:
        for graph in graphs:
            result = await client.run(graph)
            assert result.outcome == "execution_success", result.messages[-1]
            pictures += [pixels(await client.image(entry)) for entry in result.images()]
    return pictures


async def upload(url: str, name: str, picture: Image.Image) -> str:
    """Put a picture into the server's input folder; returns the name to load it by."""
    data = io.BytesIO()
    picture.save(data, "PNG")
    form = aiohttp.FormData()
    form.add_field("image", data.getvalue(), filename=name, content_type="image/png")
    form.add_field("overwrite", "true")
    async with aiohttp.ClientSession(url) as session, session.post("/upload/image", data=form) as answer:
        answer.raise_for_status()
        return str(json.loads(await answer.text())["name"])


def pixels(png: bytes) -> Picture:
    """Return the pixels [h, w, 3] of an encoded picture."""
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))
