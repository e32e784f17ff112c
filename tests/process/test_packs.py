"""Serve packs that behave, and packs that do not: server and other prompts are unharmed."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.client import Client, RunResult
from tests.support.gates import Gate
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.striking import until

STUBS = Path(__file__).parents[1] / "support" / "packs" / "stub_nodes"
CHECKPOINT = "sd15_tiny.safetensors"

PACKS = {
    "raises_at_import": "raise RuntimeError('this pack wants no guests')",
    "leaves_at_import": "import sys\nsys.exit(3)",
    "dies_at_import": "import os\nos._exit(1)",
    "bad_grammar": "def (:\n",
    "empty": "",
}


def install_packs(base: Path) -> Path:
    """Fill a custom_nodes folder; returns it."""
    folder = base / "custom_nodes"
    shutil.copytree(STUBS, folder / "stub_nodes", ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in PACKS.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(code)
    wants = folder / "stub_nodes" / "requirements.txt"
    wants.write_text("# what it wants\nmsgspec>=0.1\nno-such-package-of-ours>=2.0\nnumpy<0.1\n")
    (folder / "single_file.py").write_text(
        "class Single:\n"
        "    RETURN_TYPES = ('INT',)\n"
        "    FUNCTION = 'run'\n"
        "    @classmethod\n"
        "    def INPUT_TYPES(cls):\n"
        "        return {'required': {}}\n"
        "    def run(self):\n"
        "        return (41,)\n"
        "NODE_CLASS_MAPPINGS = {'SingleFile': Single, 'KSampler': Single}\n"
    )
    (folder / "switched_off.disabled").mkdir()
    return folder


@pytest.fixture(scope="module")
def packs(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with packs; tests may end its node host, which comes back."""
    base = tmp_path_factory.mktemp("packs")
    install_packs(base)
    running = RunningServer.start(ServerOptions(base, models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


def shown(result: RunResult, node: str = "9") -> list[str]:
    """Return the texts that a StubShow showed."""
    assert result.outcome == "execution_success", result.messages[-2:]
    texts: list[str] = result.history["outputs"][node]["text"]
    return texts


def show(*links: list[Any]) -> dict[str, Any]:
    """Return a node that shows values."""
    names = ["value", *(f"more_{index}" for index in range(1, len(links)))]
    return {"class_type": "StubShow", "inputs": dict(zip(names, links, strict=True))}


def add(first: Any, second: Any) -> dict[str, Any]:
    """Return a node that adds."""
    return {"class_type": "StubAdd", "inputs": {"first": first, "second": second}}


def error_of(result: RunResult) -> dict[str, Any]:
    """Return the data of the message that ended a prompt that failed."""
    assert result.outcome == "execution_error", result.messages[-2:]
    return next(data for kind, data in reversed(result.messages) if kind == "execution_error")


async def test_packs_that_fail_at_import_stop_no_other(packs: RunningServer) -> None:
    async with Client(packs.url) as client:
        info = await client.get("/object_info")
        result = await client.run({"1": {"class_type": "SingleFile", "inputs": {}}, "9": show(["1", 0])})
    assert shown(result) == ["41"]
    assert info["StubAdd"]["python_module"] == "custom_nodes.stub_nodes"
    assert info["StubAdd"]["display_name"] == "Add (stub)"
    assert info["StubAdd"]["output_name"] == ["sum", "calls"]
    assert info["SingleFile"]["python_module"] == "custom_nodes.single_file"
    assert info["KSampler"]["python_module"] == "nodes"
    log = packs.log()
    assert "pack raises_at_import cannot be loaded: RuntimeError: this pack wants no guests" in log
    assert "pack leaves_at_import cannot be loaded: SystemExit: 3" in log
    assert "pack bad_grammar cannot be loaded: SyntaxError" in log
    assert "node pack dies_at_import ended the process at its import" in log
    assert 'pip install "no-such-package-of-ours>=2.0" "numpy<0.1"' in log
    assert "Import times of node packs" in log


async def test_instance_of_a_node_lives_as_long_as_its_id_is_in_the_graph(packs: RunningServer) -> None:
    graph = {"41": add(1, 2), "9": show(["41", 0], ["41", 1])}
    async with Client(packs.url) as client:
        assert shown(await client.run(graph)) == ["3", "1"]
        graph["41"] = add(2, 2)
        assert shown(await client.run(graph)) == ["4", "2"]
        await client.run({"2": add(0, 0), "9": show(["2", 0])})
        graph["41"] = add(3, 2)
        assert shown(await client.run(graph)) == ["5", "1"]


async def test_objects_stay_themselves_between_nodes(packs: RunningServer) -> None:
    graph = {
        "1": {"class_type": "StubObject", "inputs": {"value": 0.25}},
        "2": {"class_type": "StubOpen", "inputs": {"basket": ["1", 0]}},
        "3": {"class_type": "StubOpen", "inputs": {"basket": ["2", 2]}},
        "4": {"class_type": "ImageInvert", "inputs": {"image": ["3", 0]}},
        "9": show(["2", 1], ["3", 1], ["4", 0]),
    }
    async with Client(packs.url) as client:
        assert shown(await client.run(graph)) == ["2", "3", "(1, 8, 8, 3) 144"]


async def test_error_of_a_node_names_its_own_exception_and_lines(packs: RunningServer) -> None:
    async with Client(packs.url) as client:
        error = error_of(await client.run({"5": {"class_type": "StubDie", "inputs": {"how": "raise"}}}))
    assert error["node_id"] == "5"
    assert error["exception_type"] == "KeyError"
    assert "stub_nodes" in "".join(error["traceback"])
    assert "comfyserverless" not in "".join(error["traceback"])


@pytest.mark.parametrize("how", ["exit", "segfault"])
async def test_death_of_the_host_fails_what_ran_there_and_nothing_else(packs: RunningServer, how: str) -> None:
    graph = {
        "1": {"class_type": "StubObject", "inputs": {"value": 0.5}},
        "2": {"class_type": "StubOpen", "inputs": {"basket": ["1", 0]}},
        "9": show(["2", 0]),
    }
    async with Client(packs.url) as client:
        before = shown(await client.run(graph))
        error = error_of(await client.run({"5": {"class_type": "StubDie", "inputs": {"how": how}}}))
        assert "StubDie" in error["exception_message"]
        assert error["node_id"] == "5"
        # The object of node 1 went down with the host, and is made again for a new consumer.
        again = {**graph, "3": {"class_type": "StubOpen", "inputs": {"basket": ["2", 2]}}, "9": show(["3", 0])}
        assert shown(await client.run(again)) == before


async def test_death_of_the_host_while_it_is_asked_what_has_changed_ends_no_other_prompt(
    packs: RunningServer,
) -> None:
    async with Client(packs.url) as client:
        error = error_of(await client.run({"5": {"class_type": "StubDie", "inputs": {"how": "doubt"}}}))
        assert error["exception_type"] == "KeyError", "it runs: nobody could say that it has not changed"
        assert shown(await client.run({"1": add(50, 1), "9": show(["1", 0])})) == ["51"]


async def test_node_that_leaves_the_program_fails_only_itself(packs: RunningServer) -> None:
    async with Client(packs.url) as client:
        error = error_of(await client.run({"5": {"class_type": "StubDie", "inputs": {"how": "leave"}}}))
    assert error["exception_type"] == "SystemExit"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return a gate; nodes that wait for it go on at the latest when the test ends."""
    made = Gate(tmp_path)
    yield made
    made.open()


async def logs(server: RunningServer, words: str) -> bool:
    """Tell whether the server has printed words."""
    return words in server.log()


async def wait_for_start(client: Client, node: str) -> None:
    """Read messages until a node has begun."""
    async for message in client.socket:
        body = message.json() if message.type.name == "TEXT" else {}
        if body.get("type") == "executing" and body["data"]["node"] == node:
            return


async def test_node_that_blocks_can_be_interrupted_and_holds_up_only_its_lane(
    packs: RunningServer, gate: Gate
) -> None:
    async with Client(packs.url) as client:
        prompt = await client.submit({"5": {"class_type": "StubBlock", "inputs": {"gate": str(gate)}}})
        await wait_for_start(client, "5")
        assert (await client.get("/object_info/StubAdd"))["StubAdd"]
        await client.post("/interrupt", {})
        assert (await client.listen(prompt)).outcome == "execution_interrupted"
        built_in = {
            "1": {
                "class_type": "EmptyImage",
                "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 255},
            },
            "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
        }
        assert (await client.run(built_in)).outcome == "execution_success"
        result = await client.run({"9": {"class_type": "StubWait", "inputs": {"value": 5, "seconds": 0.1}}})
        assert shown(result) == ["5"], "and the other node blocks still"
        gate.open()
        assert shown(await client.run({"1": add(60, 1), "9": show(["1", 0])})) == ["61"]
    progress = [data["value"] for kind, data in result.messages if kind == "progress"]
    assert progress[-1] == 2


async def test_million_lines_reach_neither_the_log_nor_the_patience_of_others(
    packs: RunningServer, gate: Gate
) -> None:
    before = len(packs.log())
    async with Client(packs.url) as client:
        shout = {"class_type": "StubShout", "inputs": {"lines": 1_000_000, "gate": str(gate)}}
        prompt = await client.submit({"5": shout})
        await wait_for_start(client, "5")
        for _ in range(20):
            assert (await client.get("/queue"))["queue_running"], "it shouts until the gate is open"
        gate.open()
        assert (await client.listen(prompt)).outcome == "execution_success"
        await until(lambda: logs(packs, "lines are not shown"))
    assert len(packs.log()) - before < 2_000_000
    assert "[packs] a stub shouts 1\n" in packs.log()


async def test_node_can_have_a_built_in_node_work_for_it(packs: RunningServer) -> None:
    base = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": CHECKPOINT}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "a red cat"}},
        "3": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "blurry"}},
        "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    }
    given = {
        "model": ["1", 0],
        "positive": ["2", 0],
        "negative": ["3", 0],
        "latent_image": ["4", 0],
        "seed": 11,
    }
    own = {
        "steps": 3,
        "cfg": 6.0,
        "sampler_name": "euler_ancestral",
        "scheduler": "normal",
        "denoise": 1.0,
    }
    graph = {
        **base,
        "5": {"class_type": "KSampler", "inputs": {**given, **own}},
        "6": {"class_type": "StubSample", "inputs": given},
        "7": {"class_type": "StubSum", "inputs": {"samples": ["5", 0]}},
        "8": {"class_type": "StubSum", "inputs": {"samples": ["6", 0]}},
        "9": show(["7", 0], ["8", 0]),
    }
    async with Client(packs.url) as client:
        first, second = shown(await client.run(graph))
    assert first == second
    assert len(set(first)) > 8


def _lives(pid: str) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


async def test_processes_that_a_pack_has_started_end_with_the_host(packs: RunningServer) -> None:
    async with Client(packs.url) as client:
        started = shown(
            await client.run({"1": {"class_type": "StubSpawn", "inputs": {}}, "9": show(["1", 0], ["1", 1])})
        )
        error_of(await client.run({"5": {"class_type": "StubDie", "inputs": {"how": "exit"}}}))
        async with asyncio.timeout(PATIENCE_S):
            while any(map(_lives, started)):  # noqa: ASYNC110 - it lasts
                await asyncio.sleep(0.05)


async def test_fork_that_comes_back_from_a_node_answers_nobody(packs: RunningServer) -> None:
    async with Client(packs.url) as client:
        for _ in range(3):
            (pid,) = shown(
                await client.run({"1": {"class_type": "StubFork", "inputs": {}}, "9": show(["1", 0])})
            )
            assert int(pid) > 0
            async with asyncio.timeout(PATIENCE_S):
                while _lives(pid):  # noqa: ASYNC110 - it lasts
                    await asyncio.sleep(0.05)


async def test_killed_host_comes_back(packs: RunningServer) -> None:
    graph = {"1": add(20, 2), "9": show(["1", 0])}
    async with Client(packs.url) as client:
        await client.run(graph)
        host = _host_pid(packs)
        os.kill(host, signal.SIGKILL)
        await until(lambda: has_another_host(packs, host))
        graph["1"] = add(20, 3)
        assert shown(await client.run(graph)) == ["23"]


def _host_pid(server: RunningServer) -> int:
    """Return the process of the node host that came last."""
    return int(re.findall(r"worker host\.\d+ is ready \(pid (\d+),", server.log())[-1])


async def has_another_host(server: RunningServer, pid: int) -> bool:
    return _host_pid(server) != pid


async def test_prompt_can_be_interrupted_while_a_pack_ponders_what_has_changed(
    packs: RunningServer, gate: Gate
) -> None:
    async with Client(packs.url) as client:
        prompt = await client.submit({"5": {"class_type": "StubPonder", "inputs": {"gate": str(gate)}}})
        while not (await client.get("/queue"))["queue_running"]:  # noqa: ASYNC110 - it lasts
            await asyncio.sleep(0.02)
        await client.post("/interrupt", {})
        assert (await client.listen(prompt)).outcome == "execution_interrupted"
        gate.open()


async def test_what_a_node_writes_into_the_workflow_is_in_the_pictures_after_it(packs: RunningServer) -> None:
    graph = {
        "1": {"class_type": "StubMark", "inputs": {"value": 5}},
        "2": {
            "class_type": "EmptyImage",
            "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": ["1", 0]},
        },
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "marked"}},
    }
    workflow = {"extra_pnginfo": {"workflow": {"nodes": []}}}
    async with Client(packs.url) as client:
        result = await client.run(graph, extra_data=workflow)
        (entry,) = result.images()
        with Image.open(io.BytesIO(await client.image(entry))) as image:
            assert json.loads(image.text["marked"]) == [5, 3]


async def test_prompts_with_nodes_of_packs_are_there_again_after_a_crash_of_the_server(
    tiny_models: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    install_packs(tmp_path)
    flags = ("--disable-all-custom-nodes", "--whitelist-custom-nodes", "stub_nodes")
    options = ServerOptions(tmp_path, models=tiny_models, flags=flags)
    first = RunningServer.start(options)
    try:
        async with Client(first.url) as client:
            running = await client.submit({"5": {"class_type": "StubBlock", "inputs": {"gate": str(gate)}}})
            await wait_for_start(client, "5")
            waiting = await client.submit({"1": add(30, 4), "9": show(["1", 0])})
            assert await client.get("/object_info/SingleFile") == {}
    finally:
        first.kill()
    gate.open()
    second = RunningServer.start(options)
    try:
        async with Client(second.url) as client, asyncio.timeout(PATIENCE_S):
            history: dict[str, Any] = {}
            while not {waiting, running} <= history.keys():
                await asyncio.sleep(0.1)
                history = await client.get("/history")
            assert history[waiting]["outputs"]["9"]["text"] == ["34"]
            assert history[running]["status"]["status_str"] == "success"
    finally:
        second.stop()
