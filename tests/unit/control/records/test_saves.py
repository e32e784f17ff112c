"""Wherever a server dies while it publishes files, the next run of the prompt publishes no second copy."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from comfyserverless.control.records import saves as saves_module
from comfyserverless.control.records.base import NamedSaves, Opening
from comfyserverless.control.records.changes import Accepted
from comfyserverless.control.records.saves import RunPublisher, complete_saves
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.saving import Publisher, claim
from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from comfyserverless.graph.lowering import Destination
from tests.support.records import NODE, open_at, waiting

OWNER = (DEFAULT_TENANT, PromptId("a"))


class CrashError(BaseException):
    """The server dies here."""


class World:
    """Servers that follow each other on one folder, and their prompt `a` that saves three files."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        self.output.mkdir()
        self._records = folder / "records.sqlite3"
        self._starts = 0
        self.place = Destination(str(self.output), "", "x", "output")
        self.start()

    def start(self) -> Opening:
        """Start a server; its first one accepts the prompt."""
        backend, opening = open_at(self._records)
        self.store = RecordStore(backend)
        self._starts += 1
        self.kept: NamedSaves = {}
        if opening.unfinished:
            self.kept = complete_saves(opening.unfinished[0].saves)
        else:
            self.store.note(Accepted(waiting("a"), 1))
        for path in self.output.glob(".*.part"):
            path.unlink()
        return opening

    def end(self) -> None:
        """End a server; what it had noted by then is on disk."""
        self.store.close()

    def stage(self, count: int = 3) -> list[str]:
        """Write what a worker writes: the bytes are the same in every run."""
        paths = [self.output / f".s{self._starts}_{nth}.part" for nth in range(count)]
        for nth, path in enumerate(paths):
            path.write_bytes(b"picture" * (nth + 1))
        return [str(path) for path in paths]

    async def run(self) -> list[str]:
        """Run the prompt; returns the file names that its user is shown."""
        publisher = RunPublisher(Publisher(), self.store, OWNER, self.kept)
        return [item["filename"] for item in await publisher.publish(NODE, self.place, self.stage(), "png")]

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.output.iterdir())}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.end()


PICTURES = {f"x_0000{nth}_.png": b"picture" * nth for nth in (1, 2, 3)}


async def test_files_are_numbered_in_order(world: World) -> None:
    assert await world.run() == list(PICTURES)
    assert world.files() == PICTURES


@pytest.mark.parametrize("named", [0, 1, 2, 3])
async def test_server_that_dies_between_two_names_leaves_no_second_copies(
    world: World, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(saves_module, "claim", dying_after(named))
        with pytest.raises(CrashError) if named < len(PICTURES) else nullcontext():
            await world.run()
    assert len([name for name in world.files() if not name.startswith(".")]) == named
    world.end()
    world.start()
    assert await world.run() == list(PICTURES)
    assert world.files() == PICTURES


def dying_after(count: int) -> Callable[[str, str], bool]:
    left = [count]

    def die_or_claim(staged: str, final: str) -> bool:
        if not left[0]:
            raise CrashError
        left[0] -= 1
        return claim(staged, final)

    return die_or_claim


async def test_server_that_dies_before_names_are_recorded_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "write", die)
        with pytest.raises(CrashError):
            await world.run()
    world.end()
    opening = world.start()
    assert opening.unfinished[0].saves == {}
    assert await world.run() == list(PICTURES)
    assert world.files() == PICTURES


async def test_every_further_crash_changes_nothing(world: World) -> None:
    for _ in range(3):
        assert await world.run() == list(PICTURES)
        world.end()
        world.start()
    assert world.files() == PICTURES


async def test_save_whose_staged_files_are_gone_is_undone_and_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(saves_module, "claim", dying_after(1))
        with pytest.raises(CrashError):
            await world.run()
    for path in world.output.glob(".*.part"):
        path.unlink()
    world.end()
    world.start()
    assert world.files() == {}
    assert await world.run() == list(PICTURES)
    assert world.files() == PICTURES


async def test_file_that_its_user_has_deleted_since_is_saved_again(world: World) -> None:
    await world.run()
    (world.output / "x_00002_.png").unlink()
    world.end()
    world.start()
    again = await world.run()
    assert list(world.files()) == again
    assert list(world.files().values()) == list(PICTURES.values())


async def test_file_of_another_program_is_neither_taken_for_ours_nor_removed(world: World) -> None:
    def take_second_name(staged: str, final: str) -> bool:
        other = world.output / "x_00002_.png"
        if not other.exists():
            other.write_bytes(b"theirs")
        return claim(staged, final)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saves_module, "claim", take_second_name)
        assert await world.run() == ["x_00001_.png", "x_00003_.png", "x_00004_.png"]
    world.end()
    world.start()
    assert await world.run() == ["x_00001_.png", "x_00003_.png", "x_00004_.png"]
    files = world.files()
    assert len(files) == 4
    assert files["x_00002_.png"] == b"theirs"


async def test_saves_of_two_runs_at_once_get_names_of_their_own(world: World) -> None:
    publisher, places = Publisher(), []
    for nth in range(2):
        place = world.place
        with (
            publisher.naming(place, range(2), "png") as first,
            publisher.naming(place, range(2), "png") as second,
        ):
            places.append([*first, *second])
        assert places[nth] == [f"x_0000{each}_.png" for each in (1, 2, 3, 4)], "names that nobody took are free"


async def test_previews_are_not_recorded_because_their_folder_is_emptied(world: World, tmp_path: Path) -> None:
    place = Destination(str(world.output), "", "p", "temp")
    publisher = RunPublisher(Publisher(), world.store, OWNER, {})
    items = await publisher.publish(NODE, place, world.stage(1), "png")
    assert (items[0]["type"], publisher.folders) == ("temp", ())
    world.end()
    assert world.start().unfinished[0].saves == {}


async def test_disk_that_refuses_a_name_fails_the_save_and_leaves_no_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(staged: str, final: str) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saves_module, "claim", refuse)
    with pytest.raises(PromptError, match="No space left on device in the output folder"):
        await world.run()
    assert os.listdir(world.output) == []
