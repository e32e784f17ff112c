"""What a node may tell the server while it runs."""

from __future__ import annotations

import asyncio
import io as bytes_io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from comfyserverless.host.api.io.schema import NodeReplace
from comfyserverless.host.bridge import InterruptProcessingException
from tests.support.pack_modules import RememberingBridge, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path, flags={"preview_size": 16}) as bridge:
        yield bridge


def _reported(bridge: RememberingBridge) -> Any:
    (kind, told), *rest = bridge.told
    assert (kind, rest) == ("progress", [])
    return told


def test_progress_is_awaited(bridge: RememberingBridge) -> None:
    api = module("comfy_api.latest").ComfyAPI()
    asyncio.run(api.execution.set_progress(3, 10))
    assert _reported(bridge) == (3, 10, None, None)


def test_progress_of_another_node_without_waiting(bridge: RememberingBridge) -> None:
    module("comfy_api.latest").ComfyAPISync().execution.set_progress(value=1, max_value=2, node_id="7")
    assert _reported(bridge) == (1, 2, "7", None)


@pytest.mark.parametrize(("is_free", "size"), [(False, (16, 8)), (True, (64, 32))])
@pytest.mark.parametrize(
    "picture", [torch.ones(32, 64, 3), torch.ones(1, 32, 64, 3), Image.new("RGB", (64, 32))]
)
def test_preview_is_no_larger_than_previews_are(
    bridge: RememberingBridge, picture: Any, is_free: bool, size: tuple[int, int]
) -> None:
    execution = module("comfy_api.latest").ComfyAPISync().execution
    execution.set_progress(1, 2, preview_image=picture, ignore_size_limit=is_free)
    assert Image.open(bytes_io.BytesIO(_reported(bridge)[3])).size == size


def test_what_is_no_picture_is_a_type_error(bridge: RememberingBridge) -> None:
    with pytest.raises(TypeError, match="not a str"):
        module("comfy_api.latest").ComfyAPISync().execution.set_progress(1, 2, preview_image="x")


def test_stopped_prompt_stops_the_node(bridge: RememberingBridge) -> None:
    bridge.is_interrupted = True
    with pytest.raises(InterruptProcessingException):
        asyncio.run(module("comfy_api.latest").ComfyAPI().execution.set_progress(1, 2))


def test_replacements_are_remembered_by_the_old_class(bridge: RememberingBridge) -> None:
    from comfyserverless.host.api.runtime import registered_replacements

    replacement = NodeReplace("NewOfThisTest", "OldOfThisTest")
    asyncio.run(module("comfy_api.latest").ComfyAPI().node_replacement.register(replacement))
    assert registered_replacements()["OldOfThisTest"] == [replacement.as_dict()]


def test_store_of_a_pack_is_told_to_be_unused(
    bridge: RememberingBridge, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(module("comfy_api.latest").ComfyAPI().caching.register_provider(object()))
    assert "not used" in caplog.text


MODULES = [
    "comfy_api", "comfy_api.latest", "comfy_api.latest._io", "comfy_api.latest._io_public",
    "comfy_api.latest._ui",
    "comfy_api.latest._ui_public", "comfy_api.latest._input", "comfy_api.latest._input.basic_types",
    "comfy_api.latest._input.video_types", "comfy_api.latest._input_impl",
    "comfy_api.latest._input_impl.video_types", "comfy_api.latest._util", "comfy_api.latest._util.video_types",
    "comfy_api.latest._util.geometry_types", "comfy_api.v0_0_1", "comfy_api.v0_0_2", "comfy_api.input",
    "comfy_api.input.basic_types", "comfy_api.input.video_types", "comfy_api.input_impl",
    "comfy_api.input_impl.video_types", "comfy_api.util", "comfy_api.util.video_types",
    "comfy_api.feature_flags",
    "comfy_api.torch_helpers", "comfy_api.internal", "comfy_api.version_list",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module_can_be_imported_with_all_it_names(bridge: RememberingBridge, name: str) -> None:
    found = module(name)
    assert [each for each in getattr(found, "__all__", ()) if not hasattr(found, each)] == []


def test_versions_share_their_classes_and_missing_names_are_told(bridge: RememberingBridge) -> None:
    latest, first = module("comfy_api.latest"), module("comfy_api.v0_0_1")
    assert latest.io.ComfyNode is first.IO.ComfyNode
    assert latest.UI is latest.ui
    assert latest.Input.Video is latest.Input.VideoInput
    with pytest.raises(AttributeError, match=r"comfyserverless has no comfy_api\.latest\.io\.Teapot"):
        _ = latest.io.Teapot
