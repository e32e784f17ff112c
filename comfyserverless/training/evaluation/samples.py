"""Run the sample workflows on a server, and keep the pictures that it makes: those that the documents show.

`python -m comfyserverless.training.evaluation.samples` writes graphs/inputs and graphs/pictures of a checkout.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image

from comfyserverless.core.errors import ComfyServerlessError
from comfyserverless.training.evaluation.asking import Artist, server_url
from comfyserverless.training.evaluation.judge import read_picture
from comfyserverless.training.evaluation.sheet import in_words
from comfyserverless.training.scenery.world import Item, Scene, draw

_CIRCLE = Item("circle", "red", x=78, y=52, radius=42)
_STAR = Item("star", "white", x=64, y=66, radius=52)
_ON_THE_LEFT = Item("circle", "red", x=64, y=64, radius=34)
_INPUTS: Mapping[str, Scene] = {
    "circle.png": Scene("single", "blue", (_CIRCLE,), (128, 128)),
    "sketch.png": Scene("single", "black", (_STAR,), (128, 128)),
    "unfinished.png": Scene("single", "blue", (_ON_THE_LEFT,), (192, 128)),
}
_MASKED_FROM_X_PX = {"unfinished.png": 108}
"""Column from which on a picture is see-through: what its mask leaves to be painted."""


def draw_input(name: str) -> Image.Image:
    """Draw a picture that a sample workflow reads; alpha is 0 where it shall be painted anew."""
    scene = _INPUTS[name]
    picture = Image.fromarray(draw(scene, np.random.default_rng(0)))
    if name in _MASKED_FROM_X_PX:
        alpha = np.full((scene.size_px[1], scene.size_px[0]), 255, np.uint8)
        alpha[:, _MASKED_FROM_X_PX[name] :] = 0
        picture.putalpha(Image.fromarray(alpha))
    return picture


def input_names() -> tuple[str, ...]:
    """Return the names of all pictures that sample workflows read."""
    return tuple(_INPUTS)


def write_inputs(folder: Path) -> None:
    """Write the pictures that the sample workflows read."""
    folder.mkdir(exist_ok=True)
    for name in _INPUTS:
        draw_input(name).save(folder / name, optimize=True)


def run_samples(graphs: Path, url: str) -> dict[str, bytes]:
    """Run every workflow of a folder; returns the first picture of each by name, as the server sent it (PNG).

    Their inputs are uploaded from `inputs/` below the folder. Raises ConfigError, AskingError.
    """
    artist = Artist(url)
    for picture in sorted((graphs / "inputs").glob("*.png")):
        artist.upload(picture)
    paths = [path for path in sorted(graphs.glob("*.json")) if not path.name.endswith(".expect.json")]
    with closing(artist.draw([json.loads(path.read_text()) for path in paths])) as pictures:
        return {path.stem: picture for path, picture in zip(paths, pictures, strict=True)}


def main(argv: Sequence[str] | None = None) -> int:
    """Write inputs and pictures of a folder of workflows, and print what each shows; returns 2 on an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("graphs"), metavar="DIR", help="default: graphs")
    parser.add_argument("--server", metavar="URL", help="a running server (default: start one, and end it)")
    arguments = parser.parse_args(argv)
    try:
        _write_all(arguments.graphs, arguments.server)
    except ComfyServerlessError as exc:
        print(f"samples: {exc}", file=sys.stderr)
        return 2
    return 0


def _write_all(graphs: Path, server: str | None) -> None:
    write_inputs(graphs / "inputs")
    with server_url(server) as url:
        pictures = run_samples(graphs, url)
    (graphs / "pictures").mkdir(exist_ok=True)
    for name, png in pictures.items():
        (graphs / "pictures" / f"{name}.png").write_bytes(png)
        reading = read_picture(np.asarray(Image.open(io.BytesIO(png)).convert("RGB")))
        print(f"{name:<20}{len(png):>8} bytes  {in_words(reading)}")


if __name__ == "__main__":
    sys.exit(main())
