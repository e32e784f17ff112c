"""Bars of progress."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyserverless.host.bridge import InterruptProcessingException
from tests.support.pack_modules import RememberingBridge, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as bridge:
        yield bridge


def test_bar_tells_the_running_node_how_far_it_is(bridge: RememberingBridge) -> None:
    bar = module("comfy.utils").ProgressBar(3)
    bar.update(1)
    bar.update_absolute(7)
    bar.update_absolute(1, total=2)
    assert bridge.told == [
        ("progress", (value, total, None, None)) for value, total in ((1, 3), (3, 3), (1, 2))
    ]
    assert (bar.current, bar.total) == (1, 2)


def test_bar_may_be_another_nodes(bridge: RememberingBridge) -> None:
    module("comfy.utils").ProgressBar(3, node_id="7").update(1)
    assert bridge.told == [("progress", (1, 3, "7", None))]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_preview_is_encoded_and_no_larger_than_wanted(bridge: RememberingBridge, kind: str) -> None:
    picture = Image.new("RGB", (64, 32), "red")
    module("comfy.utils").ProgressBar(3).update_absolute(1, preview=(kind, picture, 16))
    encoded = bridge.told[0][1][3]
    shown = Image.open(io.BytesIO(encoded))
    assert (shown.format, shown.size) == (kind, (16, 8))
    assert picture.size == (64, 32)


def test_bar_is_a_point_where_a_stopped_prompt_ends(bridge: RememberingBridge) -> None:
    bar = module("comfy.utils").ProgressBar(3)
    bridge.interrupt()
    with pytest.raises(module("comfy.model_management").InterruptProcessingException):
        bar.update(1)
    assert module("comfy.model_management").InterruptProcessingException is InterruptProcessingException


@pytest.mark.parametrize("is_assigned", [False, True])
def test_hook_of_a_pack_gets_what_bars_made_later_tell(bridge: RememberingBridge, is_assigned: bool) -> None:
    utils, told = module("comfy.utils"), []

    def hook(value: float, total: float, preview: Any, node_id: str | None = None) -> None:
        told.append((value, total, preview, node_id))

    before = utils.ProgressBar(2)
    if is_assigned:
        utils.PROGRESS_BAR_HOOK = hook
    else:
        utils.set_progress_bar_global_hook(hook)
    utils.ProgressBar(2).update(1)
    before.update(1)
    assert told == [(1, 2, None, None)]
    assert len(bridge.told) == 1
    assert utils.PROGRESS_BAR_HOOK is hook


def test_threads_of_a_node_move_the_bar_of_its_call(tmp_path: Path) -> None:
    import threading

    from comfyserverless.host.bridge import CallInfo, Places, bridge, install
    from comfyserverless.host.helpers.progress import ProgressBar
    from comfyserverless.host.running.current import Call, Running, current, executing

    told: list[str] = []

    class Live(RememberingBridge):
        @property
        def call(self) -> CallInfo:
            call = current()
            return CallInfo() if call is None else call.info

        def progress(self, *about: Any) -> None:
            told.append(self.call.node_id)

    places = Places(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
    before = install(Live(places))
    try:
        info = CallInfo(invocation="i", node_id="7")
        with executing(Call(Running(info, places, lambda: False), info)):
            bar = ProgressBar(2)
            thread = threading.Thread(target=bar.update, args=(1,))
            thread.start()
            thread.join()
        assert not bridge().call.invocation
        bar.update(1)
    finally:
        install(before)
    assert told == ["7", "7"]


def test_callback_of_samplers_shows_latents_as_the_prompt_wants(bridge: RememberingBridge) -> None:
    import torch

    from comfyserverless.host.bridge import CallInfo

    class Format:
        latent_rgb_factors = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0))

    class Model:
        load_device = "cpu"

        class model:
            latent_format = Format()

    kept: dict[str, Any] = {}
    latent = torch.ones(1, 4, 8, 8)
    module("latent_preview").prepare_callback(Model, 4, kept)(0, latent, latent, 4)
    assert bridge.told[-1] == ("progress", (1, 4, None, None))
    bridge.own_call = CallInfo(preview_method="latent2rgb")
    module("latent_preview").prepare_callback(Model, 4, kept)(1, latent, latent, 4)
    picture = Image.open(io.BytesIO(bridge.told[-1][1][3]))
    assert picture.size == (8, 8)
    assert min(picture.getpixel((4, 4))) > 250
    assert kept["x0"] is latent


def test_previewer_that_a_pack_puts_in_place_is_asked(bridge: RememberingBridge) -> None:
    preview, asked = module("latent_preview"), []
    preview.get_previewer = lambda *about: asked.append(about)

    class Model:
        load_device = "cpu"
        model = None

    preview.prepare_callback(Model, 2)(0, None, None, 2)
    assert asked == [("cpu", None)]
