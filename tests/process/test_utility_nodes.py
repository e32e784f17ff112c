"""Choices, lists, loops and texts in a real server."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.client import Client, RunResult
from tests.support.drawing import pixels
from tests.support.server import RunningServer


def _node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {
        "class_type": class_type,
        "inputs": {name.replace("__", "."): value for name, value in inputs.items()},
    }


def _image(color: int, count: int = 1, width: int = 64, height: int = 48) -> dict[str, Any]:
    return _node("EmptyImage", width=width, height=height, batch_size=count, color=color)


def _text(result: RunResult, node: str) -> list[str]:
    texts: list[str] = result.history["outputs"][node]["text"]
    return texts


async def _run(server: RunningServer, graph: dict[str, Any]) -> RunResult:
    async with Client(server.url) as client:
        result = await client.run(graph)
    assert result.outcome == "execution_success", result.messages
    return result


async def test_branch_that_a_switch_does_not_choose_never_runs(server: RunningServer) -> None:
    graph = {
        "1": _image(0xFF0000, width=72),
        "2": _node("ImageInvert", image=["3", 0]),
        "3": _image(0x0000FF, width=72),
        "4": _node("ComfyMathExpression", expression="a > 10", values__a=["5", 0]),
        "5": _node("PrimitiveInt", value=11),
        "6": _node("ComfySwitchNode", switch=["4", 2], on_true=["1", 0], on_false=["2", 0]),
        "7": _node("GetImageSize", image=["6", 0]),
        "8": _node("PreviewAny", source=["7", 0]),
    }
    result = await _run(server, graph)
    assert set(result.executed_nodes()) == {"1", "4", "5", "6", "7", "8"}
    assert _text(result, "8") == ["72"]


async def test_list_of_images_is_saved_as_several_files(server: RunningServer) -> None:
    graph = {
        "1": _image(0xFF0000),
        "2": _image(0x00FF00, count=2),
        "3": _node("CreateList", inputs__input0=["1", 0], inputs__input1=["2", 0]),
        "4": _node("SaveImage", images=["3", 0], filename_prefix="listed"),
        "5": _node("GetItemFromList", list=["3", 0], index=-1),
        "6": _node("GetImageSize", image=["5", 0]),
        "7": _node("PreviewAny", source=["6", 2]),
    }
    result = await _run(server, graph)
    names = [image["filename"] for image in result.history["outputs"]["4"]["images"]]
    assert len(set(names)) == 3
    assert _text(result, "7") == ["2"]


async def test_loop_runs_its_body_for_each_iteration_and_gives_all_values(server: RunningServer) -> None:
    graph = {
        "1": _image(0x202020),
        "2": _node(
            "StartLoop",
            mode="simple",
            mode__num_iterations=3,
            cache_iterations=True,
            initial_iteration_value=["1", 0],
        ),
        "3": _node(
            "ImageStitch",
            image1=["2", 4],
            image2=["1", 0],
            direction="right",
            match_image_size=False,
            spacing_width=0,
            spacing_color="white",
        ),
        "4": _node("EndLoop", output_value=["3", 0], next_iteration_value=["3", 0], accumulate=True),
        "5": _node("GetImageSize", image=["4", 0]),
        "6": _node("PreviewAny", source=["5", 0]),
    }
    async with Client(server.url) as client:
        result = await client.run(graph)
        assert result.outcome == "execution_success", result.messages
        assert _text(result, "6") == ["128", "192", "256"]
        shown = [data["display_node"] for kind, data in result.messages if kind == "executing" and data["node"]]
        assert shown.count("3") == 3
        again = await client.run(graph)
    assert _text(again, "6") == ["128", "192", "256"]
    assert "4" in again.cached_nodes()


async def test_any_value_is_shown_as_text(server: RunningServer) -> None:
    graph = {
        "1": _node("CheckpointLoaderSimple", ckpt_name="sd15_tiny.safetensors"),
        "2": _node("PreviewAny", source=["1", 0]),
        "3": _node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "4": _node("PreviewAny", source=["3", 0]),
        "5": _node("PrimitiveFloat", value=0.5),
        "6": _node("PreviewAny", source=["5", 0]),
    }
    result = await _run(server, graph)
    assert _text(result, "2") == ["<MODEL sd15_tiny.safetensors>"]
    assert _text(result, "4")[0].startswith("{'samples': tensor([[[[0., 0.")
    assert _text(result, "6") == ["0.5"]


async def test_endless_pattern_fails_its_prompt_and_nothing_else(server: RunningServer) -> None:
    graph = {
        "1": _node(
            "RegexExtract",
            string="x" * 60 + "!",
            regex_pattern="(x|xx)+$",
            mode="First Match",
            case_insensitive=False,
            multiline=False,
            dotall=False,
            group_index=1,
        ),
        "2": _node("PreviewAny", source=["1", 0]),
    }
    async with Client(server.url) as client:
        failed = await client.run(graph)
        assert failed.outcome == "execution_error"
        (error,) = [data for kind, data in failed.messages if kind == "execution_error"]
        assert "given up" in error["exception_message"]
        graph["1"]["inputs"] |= {"string": "a=1", "regex_pattern": r"(\w)=(\d)"}
        assert _text(await client.run(graph), "2") == ["a=1"]


async def test_two_images_are_compared_and_resized(server: RunningServer) -> None:
    graph = {
        "1": _image(0xFF0000),
        "2": _node(
            "ResizeImageMaskNode",
            input=["1", 0],
            resize_type="scale longer dimension",
            resize_type__longer_size=32,
            scale_method="area",
        ),
        "3": _node("BatchImagesNode", images__image0=["2", 0], images__image1=["1", 0]),
        "4": _node("ImageCompare", compare_view={"__value__": ["", ""]}, image_a=["1", 0], image_b=["3", 0]),
    }
    async with Client(server.url) as client:
        result = await client.run(graph)
        assert result.outcome == "execution_success", result.messages
        shown = result.history["outputs"]["4"]
        assert {key: len(items) for key, items in shown.items()} == {"a_images": 1, "b_images": 2}
        picture = pixels(await client.image(shown["b_images"][1]))
    assert picture.shape == (24, 32, 3)
    assert np.array_equal(picture[0, 0], [255, 0, 0])


async def test_loops_nest_over_lists_and_numbers(server: RunningServer) -> None:
    graph = {
        "1": _node("PrimitiveString", value="a"),
        "2": _node("PrimitiveString", value="b"),
        "3": _node("CreateList", inputs__input0=["1", 0], inputs__input1=["2", 0]),
        "4": _node("StartLoop", mode="List", mode__list=["3", 0], cache_iterations=False),
        "5": _node(
            "StartLoop",
            mode="simple",
            mode__num_iterations=2,
            cache_iterations=False,
            parent_iteration=["4", 0],
        ),
        "6": _node("StringFormat", f_string="{a}{b}", values__a=["4", 3], values__b=["5", 0]),
        "7": _node("EndLoop", output_value=["6", 0], accumulate=True),
        "8": _node("EndLoop", output_value=["7", 0], accumulate=True),
        "9": _node("PreviewAny", source=["8", 0]),
    }
    async with Client(server.url) as client:
        for _ in range(2):  # nothing is taken from the first run
            result = await client.run(graph)
            assert result.outcome == "execution_success", result.messages
            assert _text(result, "9") == ["a0", "a1", "b0", "b1"]
            assert "8" not in result.cached_nodes()


async def test_node_that_saves_in_a_loop_runs_in_its_iterations_only(server: RunningServer) -> None:
    graph = {
        "1": _image(0x202020),
        "2": _node(
            "StartLoop",
            mode="simple",
            mode__num_iterations=3,
            cache_iterations=False,
            initial_iteration_value=["1", 0],
        ),
        "3": _node("ImageInvert", image=["2", 4]),
        "4": _node("SaveImage", images=["3", 0], filename_prefix="in_loop"),
        "5": _node("EndLoop", output_value=["3", 0], next_iteration_value=["3", 0], accumulate=True),
        "6": _node("PreviewImage", images=["5", 0]),
    }
    graph["5"]["inputs"]["terminations.termination0"] = ["4", 0]
    async with Client(server.url) as client:
        result = await client.run(graph)
    assert result.outcome == "execution_success", result.messages
    saved = [
        data["output"]["images"][0]["filename"]
        for kind, data in result.messages
        if kind == "executed" and data["display_node"] == "4"
    ]
    assert sorted(saved) == [f"in_loop_{number:05}_.png" for number in (1, 2, 3)]


async def test_images_come_over_the_websocket_as_png(server: RunningServer) -> None:
    graph = {"1": _image(0x00FF00, count=2), "2": _node("SaveImageWebsocket", images=["1", 0])}
    async with Client(server.url) as client:
        for _ in range(2):  # it is never taken from the cache
            result = await client.run(graph)
            assert result.outcome == "execution_success", result.messages
            pictures = [pixels(preview) for preview in result.previews]
            assert [picture.shape for picture in pictures] == [(48, 64, 3)] * 2
            assert np.array_equal(pictures[0][0, 0], [0, 255, 0])


async def test_saved_files_hold_what_was_asked_for(server: RunningServer) -> None:
    graph = {
        "1": _image(0x0000FF, count=2),
        "2": _node(
            "SaveImageAdvanced",
            images=["1", 0],
            filename_prefix="deep",
            format="png",
            format__bit_depth="16-bit",
            format__input_color_space="sRGB",
        ),
        "3": _node(
            "SaveAnimatedWEBP",
            images=["2", 0],
            filename_prefix="film",
            fps=4.0,
            lossless=True,
            quality=80,
            method="fastest",
        ),
        "4": _node("SaveText", text=["5", 0], filename_prefix="words", format="md"),
        "5": _node("StringConcatenate", string_a="a", string_b="b", delimiter="-"),
    }
    result = await _run(server, graph)
    outputs = result.history["outputs"]
    async with Client(server.url) as client:
        assert np.array_equal(pixels(await client.image(outputs["2"]["images"][1]))[0, 0], [0, 0, 255])
        assert (await client.image(outputs["3"]["images"][0]))[8:12] == b"WEBP"
        assert await client.image(outputs["4"]["files"][0]) == b"a-b"
    assert outputs["3"]["animated"] == [True]
    assert _text(result, "4") == ["a-b"]


async def test_linked_number_far_beyond_its_range_is_refused(server: RunningServer) -> None:
    graph = {
        "1": _node("PrimitiveInt", value=1_000_000),
        "2": _image(0xFF0000),
        "3": _node("ImageBlur", image=["2", 0], blur_radius=["1", 0], sigma=1.0),
        "4": _node("PreviewImage", images=["3", 0]),
    }
    async with Client(server.url) as client:
        failed = await client.run(graph)
    (error,) = [data for kind, data in failed.messages if kind == "execution_error"]
    assert error["node_id"] == "3"
    assert error["exception_message"].startswith("Input 'blur_radius' takes 1 to 31, but got 1000000")
