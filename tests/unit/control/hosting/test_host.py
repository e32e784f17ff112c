"""The node host as the control process knows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.host import HostDown, PackHost
from comfyserverless.control.views import WorkerView
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import EngineConfig, Folders
from comfyserverless.core.hosting import Catalog, PackReport
from comfyserverless.core.ids import InvocationId, WorkerId

FIRST, SECOND = WorkerId("host.0"), WorkerId("host.1")
CATALOG = Catalog((PackReport("p", "/p", 0.1, classes=("A",)),), {})


def process_view() -> WorkerView:
    """Return a process that is being started."""
    slot = "host"
    return WorkerView(slot, None, None, "starting", 0, "", "cpu", None, *[0] * 6, (), "")


class Known:
    """A host with a pack, and what is sent to it."""

    def __init__(self, base: Path, **config: Any) -> None:
        (base / "custom_nodes" / "pack").mkdir(parents=True)
        folders = Folders(base, (), base, base, base, base, base / "custom_nodes")
        self.config = EngineConfig(folders, **config)
        self.host = PackHost(self.config, FolderPaths(folders), base)
        self.sent: list[tuple[WorkerId, wire.ToWorker]] = []
        self.host.connect(
            lambda worker, message: self.sent.append((worker, message)), lambda _: None, lambda: None
        )

    def notice(self, kind: str, payload: Any, invocation: str | None = None) -> None:
        name = None if invocation is None else InvocationId(invocation)
        self.host.received(wire.HostNotice(kind, values.encode(payload), name))

    def load(self, worker: WorkerId) -> None:
        self.host.joined(worker)
        self.notice("catalog", msgspec.to_builtins(CATALOG))

    def answer(self, payload: Any, error: str = "") -> None:
        _, question = self.sent[-1]
        assert isinstance(question, wire.HostQuestion)
        self.host.received(wire.HostAnswer(question.id, values.encode(payload), error))


@pytest.fixture
def known(tmp_path: Path) -> Known:
    return Known(tmp_path)


async def test_question_gets_its_answer_or_the_words_of_the_host(known: Known) -> None:
    known.load(FIRST)
    asked = asyncio.create_task(known.host.ask("describe", {"nodes": []}))
    await asyncio.sleep(0)
    known.answer({"1": None})
    assert await asked == {"1": None}
    asked = asyncio.create_task(known.host.ask("describe", {}))
    await asyncio.sleep(0)
    known.answer(None, "KeyError: 'nodes'")
    with pytest.raises(ValueError, match="nodes"):
        await asked


async def test_question_to_a_host_that_ends_is_asked_once_more(known: Known) -> None:
    known.load(FIRST)
    asked = asyncio.create_task(known.host.ask("describe", {}))
    await asyncio.sleep(0)
    known.host.lost(FIRST)
    await asyncio.sleep(0)
    known.load(SECOND)
    async with asyncio.timeout(60):
        while len(known.sent) < 2:  # noqa: ASYNC110 - a list that tests look at
            await asyncio.sleep(0)
    assert [worker for worker, _ in known.sent] == [FIRST, SECOND]
    known.host.lost(SECOND)
    with pytest.raises(HostDown, match="ended"):
        await asked


async def test_question_that_nobody_answers_ends(known: Known) -> None:
    known.load(FIRST)
    with pytest.raises(HostDown, match="did not answer within"):
        await known.host.ask("check", {}, 0.01)


async def test_pack_whose_import_ended_the_host_twice_is_not_loaded_again(known: Known) -> None:
    known.host.joined(FIRST)
    known.notice("loading", {"pack": "deadly"})
    known.host.lost(FIRST)
    assert known.host.plan().given_up == {}, "the kill may have come from elsewhere"
    known.host.joined(SECOND)
    known.notice("loading", {"pack": "deadly"})
    known.host.lost(SECOND)
    assert known.host.plan().given_up == {"deadly": "its import ended the process"}
    known.host.joined(FIRST)
    known.notice("loading", {"pack": "other"})
    known.notice("loading", {"pack": ""})
    known.host.lost(FIRST)
    assert set(known.host.plan().given_up) == {"deadly"}


async def test_prompts_wait_for_packs_that_are_being_loaded_but_not_for_ever(known: Known) -> None:
    assert await known.host.loaded(0.01) is None
    waiting = asyncio.create_task(known.host.loaded(60))
    await asyncio.sleep(0)
    known.load(FIRST)
    assert await waiting == CATALOG
    known.host.lost(FIRST)
    assert await known.host.loaded(0.01) is None


async def test_notices_reach_who_listens_for_their_kind(known: Known) -> None:
    heard: list[Any] = []
    known.host.listen("send", lambda payload, invocation: heard.append((payload, invocation)))
    known.notice("send", {"event": "x"}, "i")
    known.notice("text", {"text": "y"})
    assert heard == [({"event": "x"}, "i")]


@pytest.mark.parametrize(("config", "wanted"), [({}, True), ({"loads_packs": False}, False)])
def test_host_is_wanted_only_for_packs_that_may_be_loaded(
    tmp_path: Path, config: dict[str, Any], wanted: bool
) -> None:
    assert Known(tmp_path, **config).host.is_wanted is wanted
    assert not any((tmp_path / "custom_nodes").glob("*.py"))


def test_plan_names_folders_flags_and_what_packs_cannot_have(tmp_path: Path) -> None:
    plan = Known(tmp_path, pack_whitelist=("a",), argv=("prog", "--flag")).host.plan()
    assert plan.custom_nodes == (str(tmp_path / "custom_nodes"),)
    assert plan.whitelist == ("a",)
    assert plan.settings.argv == ("prog", "--flag")
    assert "checkpoints" in plan.settings.folders
    assert "KSampler" in plan.taken


async def test_node_that_waits_for_a_process_that_is_not_coming_fails_and_says_why(known: Known) -> None:
    known.load(FIRST)
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(known.host.answer_of(never))
    for _ in range(4):
        await asyncio.sleep(0)
        assert not waiting.done()
        known.load(FIRST)
        known.host.lost(FIRST)
        known.host.ended()
    with pytest.raises(HostDown, match="ended 4 times while no node ran"):
        await waiting
    with pytest.raises(HostDown, match="ended 4 times"):
        await known.host.answer_of(asyncio.sleep(60))
    assert await known.host.loaded() is None, "nobody waits"


async def test_answer_of_a_node_is_waited_for(known: Known) -> None:
    known.load(FIRST)
    assert await known.host.answer_of(asyncio.sleep(0, "answer")) == "answer"


async def test_page_does_not_wait_for_what_cannot_be_started_and_operators_read_why(known: Known) -> None:
    known.host.not_started()
    async with asyncio.timeout(5):
        assert await known.host.loaded_soon(60.0) is None
    known.host.connect(lambda *_: None, lambda _: None, lambda: process_view())
    assert "cannot be started" in known.host.view().problem
    known.load(SECOND)
    assert await known.host.loaded_soon(60.0) == CATALOG
    assert known.host.view().problem == ""
