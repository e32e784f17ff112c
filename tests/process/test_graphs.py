"""Run every sample workflow of graphs/ and compare with what it must do.

`name.expect.json` holds: outcome (success or error); executed (nodes that run on a cold server, in any order);
images (output node -> number of pictures); inputs (files of graphs/inputs that it reads).
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.client import Client, RunResult
from tests.support.server import RunningServer

GRAPHS = Path(__file__).parents[2] / "graphs"
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
    """Compare the number of pictures by node, and open each of them."""
    outputs = result.history["outputs"]
    assert {node: len(output["images"]) for node, output in outputs.items()} == expected["images"]
    for entry in result.images():
        picture = Image.open(io.BytesIO(await client.image(entry)))
        assert picture.width >= 128


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
