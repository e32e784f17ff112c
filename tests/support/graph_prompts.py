"""Build prompts for tests."""

from __future__ import annotations

from typing import Any

Prompt = dict[str, Any]


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    """Return one node of a prompt."""
    return {"class_type": class_type, "inputs": inputs}


def text_to_image(**ksampler: Any) -> Prompt:
    """Return the usual seven nodes, with some of the sampler's inputs replaced."""
    sampler = {
        "seed": 1,
        "steps": 3,
        "cfg": 7,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1,
        "model": ["4", 0],
        "positive": ["6", 0],
        "negative": ["7", 0],
        "latent_image": ["5", 0],
    }
    return {
        "4": node("CheckpointLoaderSimple", ckpt_name="sd15_tiny.safetensors"),
        "5": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "6": node("CLIPTextEncode", text="a cat", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="bad", clip=["4", 1]),
        "3": node("KSampler", **{**sampler, **ksampler}),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", filename_prefix="api", images=["8", 0]),
    }


def image_chain(length: int) -> Prompt:
    """Return EmptyImage, `length` inversions and a SaveImage, the output first."""
    chain = {str(i): node("ImageInvert", image=[str(i - 1), 0]) for i in range(length, 0, -1)}
    return {
        "save": node("SaveImage", images=[str(length), 0], filename_prefix="x"),
        **chain,
        "0": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
    }
