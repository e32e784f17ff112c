"""What packs hand over with `comfy_entrypoint`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyserverless.host.api.extension import ComfyExtension, load_nodes, nodes_of
from tests.unit.host.api.nodes import Plain, Rich


class Extension(ComfyExtension):
    """Notes the order of what is asked."""

    def __init__(self, classes: Any) -> None:
        self.classes = classes
        self.asked: list[str] = []

    async def on_load(self) -> None:
        """Note it."""
        self.asked.append("on_load")

    async def get_node_list(self) -> Any:
        """Note it and return the classes."""
        self.asked.append("get_node_list")
        return self.classes


def test_classes_come_by_their_ids_after_the_pack_was_prepared() -> None:
    extension = Extension([Plain, Rich])
    assert load_nodes(lambda: extension) == {"Plain": Plain, "Rich": Rich}
    assert extension.asked == ["on_load", "get_node_list"]


def test_entry_point_may_be_async_and_a_loop_may_run_already() -> None:
    async def entrypoint() -> Extension:
        return Extension([Plain])

    async def beside_a_loop() -> Any:
        return load_nodes(entrypoint)

    assert load_nodes(entrypoint) == {"Plain": Plain}
    assert asyncio.run(beside_a_loop()) == {"Plain": Plain}
    assert asyncio.run(nodes_of(entrypoint)) == {"Plain": Plain}


@pytest.mark.parametrize(
    ("entrypoint", "told"),
    [
        (lambda: [Plain], "not a ComfyExtension"),
        (lambda: Extension({"Plain": Plain}), "returned a dict, not a list"),
        (lambda: Extension([object]), "no io.ComfyNode class"),
    ],
)
def test_what_is_no_extension_is_a_type_error(entrypoint: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        load_nodes(entrypoint)
