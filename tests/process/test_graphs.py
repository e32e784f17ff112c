"""Run every sample workflow of graphs/ and compare with what it must do.

`name.expect.json` holds: outcome (success or error); executed (nodes that run on a cold server, in any order);
images (output node -> number of pictures); inputs (files of graphs/inputs that it reads); shows (what the judge
reads in its picture, in words).
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
from PIL import Image

from comfyserverless.demo.places import DEMO_CHECKPOINT
from comfyserverless.training.evaluation.judge import read_picture
from comfyserverless.training.evaluation.samples import draw_input, input_names
from comfyserverless.training.evaluation.sheet import in_words
from tests.support.client import Client, RunResult
from tests.support.drawing import GRAPHS, pixels
from tests.support.server import RunningServer

NAMES = sorted(path.name.removesuffix(".expect.json") for path in GRAPHS.glob("*.expect.json"))


def read(name: str) -> Any:
    """Return the JSON of a file of graphs/."""
    return json.loads((GRAPHS / name).read_text())


def provide_inputs(server: RunningServer, expected: dict[str, Any]) -> None:
    """Put the pictures that a graph reads into the server's input folder."""
    server.folder("input").mkdir(exist_ok=True)
    for name in expected.get("inputs", ()):
        shutil.copy(GRAPHS / "inputs" / name, server.folder("input"))


def test_every_sample_has_its_expectation() -> None:
    graphs = {path.name.removesuffix(".json") for path in GRAPHS.glob("*.json")}
    assert graphs == set(NAMES) | {f"{name}.expect" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_sample_names_the_demo_checkpoint(name: str) -> None:
    loaders = [node for node in read(f"{name}.json").values() if node["class_type"] == "CheckpointLoaderSimple"]
    assert [loader["inputs"]["ckpt_name"] for loader in loaders] == [DEMO_CHECKPOINT]


@pytest.mark.parametrize("name", NAMES)
async def test_sample_graph_does_what_it_says_and_is_cached_after(name: str, server: RunningServer) -> None:
    prompt, expected = read(f"{name}.json"), read(f"{name}.expect.json")
    provide_inputs(server, expected)
    async with Client(server.url) as client:
        first = await client.run(prompt)
        assert first.outcome == f"execution_{expected['outcome']}", first.messages
        assert {*first.executed_nodes(), *first.cached_nodes()} == set(expected["executed"])
        await check_images(client, first, expected)
        again = await client.run(prompt)
        assert again.executed_nodes() == []
        assert again.images() == first.images()


async def check_images(client: Client, result: RunResult, expected: dict[str, Any]) -> None:
    """Compare the number of pictures by node, and read each of them."""
    outputs = result.history["outputs"]
    assert {node: len(output["images"]) for node, output in outputs.items()} == expected["images"]
    for entry in result.images():
        picture = pixels(await client.image(entry))
        assert min(picture.shape[:2]) >= 128
        if "shows" in expected:
            assert in_words(read_picture(picture)) == expected["shows"]


def test_pictures_that_samples_read_are_the_drawn_ones() -> None:
    assert sorted(path.name for path in (GRAPHS / "inputs").iterdir()) == sorted(input_names())
    for name in input_names():
        with Image.open(GRAPHS / "inputs" / name) as picture:
            drawn = draw_input(name)
            assert picture.mode == drawn.mode
            # A normal variate may round another way elsewhere.
            assert np.abs(np.asarray(picture).astype(int) - np.asarray(drawn)).max() <= 1


def test_first_graph_of_the_page_is_the_text_to_image_sample() -> None:
    page = json.loads((GRAPHS.parent / "web" / "default_graph.json").read_text())
    sample = read("text_to_image.json")
    assert {str(node["id"]): node["type"] for node in page["nodes"]} == {
        key: node["class_type"] for key, node in sample.items()
    }
    links = {link[0]: [str(link[1]), link[2]] for link in page["links"]}
    for node in page["nodes"]:
        inputs = sample[str(node["id"])]["inputs"]
        assert {each["name"]: links[each["link"]] for each in node["inputs"]} == {
            name: value for name, value in inputs.items() if isinstance(value, list)
        }
        widgets = [value for value in node["widgets_values"] if value != "fixed"]
        assert widgets == [value for value in inputs.values() if not isinstance(value, list)]
