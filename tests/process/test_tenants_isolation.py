"""Try every route that the server has with another tenant's ids and files: nothing is shown, nothing changes.

The list of routes comes from the router, so a route that is added later is tried as well. Alice has one of
everything; Mallory knows the names of most of it, and none of the contents.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.process.test_recovery import endless, graph
from tests.support.client import Client
from tests.support.server import RunningServer, ServerOptions
from tests.support.striking import until
from tests.support.tenants import add_tenant, routes_with_accounts

PLACEHOLDER = re.compile(r"\{[^}]*\}")
SECRET = "xyzzy-secret"
"""Is in everything that Alice writes; nobody else ever sends it."""

KNOWN = "alice-known"
"""Is in the names that Mallory has heard of."""

STATIC = {"/", "/extensions/{pack}/{path}", "/{path}"}
"""Files of the page: the same for everybody, and pictures among them."""

OPEN = {"/login", "/healthz", "/readyz"}
"""Is served to those without a token, too."""

PLAIN_WORDS = ("checkpoints", "0", "output")
SOCKETS = {"/ws", "/api/ws"}

Served = tuple[RunningServer, dict[str, str]]
"""A server and the tokens of its tenants by name."""


@dataclass
class World:
    """One server, the tokens of its tenants, and what Alice has there."""

    server: RunningServer
    tokens: dict[str, str]
    client_id: str = "alice-known-client"
    prompt_ids: list[str] = field(default_factory=list)
    hidden_id: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)

    def names(self) -> list[str]:
        """List what Mallory puts where a route has a placeholder."""
        base = self.server.options.base
        files = [entry["filename"] for entry in self.outputs]
        return [
            *PLAIN_WORDS,
            *self.prompt_ids,
            *files,
            f"{KNOWN}.png",
            f"../alice/{KNOWN}.png",
            f"workflows/{KNOWN}.json",
            f"../alice/workflows/{KNOWN}.json",
            str(base / "user" / "alice" / "workflows" / f"{KNOWN}.json"),
            "alice",
            f"{KNOWN}.setting",
        ]


def png(color: str) -> bytes:
    """Return a picture that carries a secret text."""
    buffer, texts = io.BytesIO(), PngInfo()
    texts.add_text("note", SECRET)
    Image.new("RGB", (16, 16), color).save(buffer, "PNG", pnginfo=texts)
    return buffer.getvalue()


def alices_graph(seed: int, steps: int = 0) -> dict[str, Any]:
    """Return a prompt of Alice's, an endless one unless it has so many steps."""
    prompt = graph(seed, steps) if steps else endless(seed)
    prompt["2"]["inputs"]["text"] = f"a red cat {SECRET}"
    prompt["7"]["inputs"]["filename_prefix"] = f"{KNOWN}-out"
    prompt["8"] = {"class_type": "PreviewImage", "inputs": {"images": ["6", 0]}}
    return prompt


@pytest.fixture(scope="module")
def server(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("tenants")
    tokens = {name: add_tenant(base, name) for name in ("alice", "bob", "carol", "mallory")}
    running = RunningServer.start(ServerOptions(base, models=tiny_models, flags=("--preview-method", "auto")))
    try:
        yield running, tokens
        assert not [name for name, token in tokens.items() if token in running.log()]
    finally:
        running.stop()


@pytest.fixture
async def world(server: Served) -> AsyncIterator[tuple[World, Client]]:
    """Let Alice upload, save, run and queue; her long prompt still runs when the test begins."""
    made = World(*server)
    async with Client(made.server.url, made.client_id, made.tokens["alice"]) as alice:
        await alice.wait_for_workers()
        await furnish(made, alice)
        yield made, alice
        await stop_all(alice)
        await alice.post("/history", {"clear": True})


async def is_idle(client: Client) -> bool:
    return (await client.get("/prompt"))["exec_info"]["queue_remaining"] == 0


async def stop_all(client: Client) -> None:
    """Drop what a tenant has queued and running, and wait for the end of it."""
    await client.post("/queue", {"clear": True})
    await client.post("/interrupt", {})
    await until(lambda: is_idle(client))


async def furnish(made: World, alice: Client) -> None:
    for name in (f"{KNOWN}.png", f"{SECRET}.png"):
        form = aiohttp.FormData()
        form.add_field("image", png("green"), filename=name)
        async with alice.session.post("/upload/image", data=form) as answer:
            assert answer.status == 200
    for name in (f"{KNOWN}.json", f"{SECRET}.json"):
        async with alice.session.post(
            f"/userdata/{quote('workflows/' + name, safe='')}", data=SECRET
        ) as answer:
            assert answer.status == 200
    await alice.post("/settings", {f"{KNOWN}.setting": SECRET})
    extra = {"extra_pnginfo": {"workflow": {"id": SECRET}}}
    first = await alice.run(alices_graph(1, 2), extra_data=extra)
    assert first.outcome == "execution_success", first.messages[-1]
    made.outputs = first.images()
    made.hidden_id = (await alice.run(alices_graph(2, 2), extra_data=extra)).prompt_id
    waiting = [await alice.submit(alices_graph(seed), extra_data=extra) for seed in (3, 4)]
    made.prompt_ids = [first.prompt_id, *waiting]
    await until(lambda: is_running(alice))


async def is_running(client: Client) -> bool:
    return bool((await client.get("/queue"))["queue_running"])


def paths(pattern: str, names: list[str]) -> Iterator[str]:
    """Yield a route's paths with every placeholder replaced by names, in many combinations."""
    holes = PLACEHOLDER.findall(pattern)
    if not holes:
        yield pattern
        return
    firsts = itertools.product(names if len(holes) < 3 else PLAIN_WORDS, repeat=len(holes) - 1)
    for values in itertools.product(firsts, names):
        filled = pattern
        for value in (*values[0], values[1]):
            filled = PLACEHOLDER.sub(lambda _, value=value: quote(value, safe=""), filled, count=1)
        yield filled


def queries(made: World) -> Iterator[dict[str, str]]:
    """Yield the parameters with which Mallory asks for Alice's things."""
    yield {}
    output, preview = (next(e for e in made.outputs if e["type"] == kind) for kind in ("output", "temp"))
    files = [(output["filename"], "output"), (preview["filename"], "temp"), (f"{KNOWN}.png", "input")]
    for (name, kind), folder in itertools.product(files, ("", "../alice", "alice")):
        yield {"filename": name, "subfolder": folder, "type": kind}
        yield {"filename": f"../alice/{name}", "type": kind, "subfolder": folder, "channel": "rgb"}
    for folder in ("workflows", "../alice/workflows", "../alice", str(made.server.options.base)):
        more = {"recurse": "true", "full_info": "true", "workflow_id": "1", "prompt_id": made.prompt_ids[0]}
        yield {"dir": folder, "path": folder, "clientId": made.client_id, **more}


def body(made: World) -> dict[str, Any]:
    """Return every field that any route takes, about Alice's things."""
    prompt = graph(99, 2)
    prompt["2"]["inputs"]["text"] = "bob"
    prompt["8"] = {"class_type": "LoadImage", "inputs": {"image": f"../alice/{KNOWN}.png"}}
    prompt["9"] = {"class_type": "PreviewImage", "inputs": {"images": ["8", 0]}}
    return {
        "delete": made.prompt_ids,
        "clear": True,
        "job_ids": made.prompt_ids,
        "prompt_id": made.prompt_ids[1],
        "client_id": made.client_id,
        "clientId": made.client_id,
        "enabled": True,
        "unload_models": True,
        "free_memory": True,
        "tenant": "alice",
        "user": "alice",
        "prompt": prompt,
    }


def forms(made: World) -> Iterator[aiohttp.FormData]:
    """Yield uploads that aim at Alice's files."""
    output = next(entry for entry in made.outputs if entry["type"] == "output")
    references = [
        {"filename": output["filename"], "type": "output", "subfolder": folder} for folder in ("", "../alice")
    ]
    for folder, reference in itertools.product(("", "../alice"), references):
        form = aiohttp.FormData()
        picture = io.BytesIO()
        Image.new("RGBA", (64, 64), "blue").save(picture, "PNG")
        form.add_field("image", picture.getvalue(), filename=f"{KNOWN}.png")
        form.add_field("subfolder", folder)
        form.add_field("overwrite", "true")
        form.add_field("original_ref", json.dumps(reference))
        yield form


async def possessions(made: World, alice: Client) -> dict[str, Any]:
    """Return all that Alice has, as she sees it."""
    seen: dict[str, Any] = {}
    for path in (
        "/history",
        "/settings",
        "/userdata?dir=.&recurse=true&full_info=true",
        "/internal/files/input",
    ):
        seen[path] = await alice.get(path)
    seen["/internal/files/output"] = sorted(await alice.get("/internal/files/output"))
    queue = await alice.get("/queue")
    seen["/queue"] = {state: [item[1] for item in items] for state, items in queue.items()}
    for entry in (*made.outputs, {"filename": f"{KNOWN}.png", "subfolder": "", "type": "input"}):
        seen[entry["filename"]] = await alice.image(entry)
    async with alice.session.get(f"/userdata/workflows%2F{KNOWN}.json") as answer:
        seen["workflow"] = await answer.text()
    return seen


class Mallory:
    """Send requests as Mallory and look for what is not hers."""

    def __init__(self, made: World, session: aiohttp.ClientSession) -> None:
        self._made = made
        self._session = session
        self._forbidden = [SECRET.encode(), made.hidden_id.encode()]
        self.count = 0
        self.leaks: list[str] = []

    def forbid(self, *texts: str) -> None:
        """Look for more texts from now on."""
        self._forbidden += [text.encode() for text in texts]

    def allow(self, *texts: str) -> None:
        """No longer look for texts that Mallory is about to send himself."""
        self._forbidden = [text for text in self._forbidden if text.decode() not in texts]

    async def send(self, method: str, pattern: str, path: str, **fields: Any) -> None:
        """Send one request and note what its answer gives away."""
        self.count += 1
        url = f"{self._made.server.url}{path}"
        async with self._session.request(method, url, allow_redirects=False, **fields) as answer:
            content = await answer.read()
            told = content + repr(answer.headers).encode()
            found = [text for text in self._forbidden if text in told]
            is_picture = answer.content_type.startswith("image/") and answer.status == 200
            if found or (method == "GET" and is_picture and pattern not in STATIC):
                self.leaks.append(f"{method} {path}: {answer.status} {found} {content[:120]!r}")
            if answer.status >= 500 and b"SERVICE_DISABLED" not in content:
                self.leaks.append(f"{method} {path}: {answer.status} {content[:120]!r}")


def urls(pattern: str, made: World) -> Iterator[str]:
    """Yield what Mallory asks a route: all paths plainly, and the first ones with every query."""
    for index, path in enumerate(paths(pattern, made.names())):
        for query in queries(made) if index == 0 else [{}]:
            yield f"{path}?{urlencode(query)}" if query else path


async def look_around(mallory: Mallory, made: World, routes: list[tuple[str, str]]) -> None:
    """Read every route: first as somebody who knows nothing, then with all names."""
    gets = [pattern for method, pattern in routes if method == "GET"]
    unknown = [KNOWN, *made.prompt_ids, '"alice"', "/alice/"]
    mallory.forbid(*unknown)
    for pattern in gets:
        await mallory.send("GET", pattern, PLACEHOLDER.sub("0", pattern))
    mallory.allow(*unknown)
    for pattern in gets:
        for url in urls(pattern, made):
            await mallory.send("GET", pattern, url)


async def interfere(mallory: Mallory, made: World, routes: list[tuple[str, str]]) -> None:
    """Send every other method, with bodies and forms about Alice's things."""
    for method, pattern in routes:
        if method in ("GET", "HEAD"):
            continue
        for path in itertools.islice(paths(pattern, made.names()), 100):
            await mallory.send(method, pattern, path, json=body(made))
        for form in forms(made) if method == "POST" else ():
            await mallory.send(method, pattern, next(paths(pattern, made.names())), data=form)


async def test_no_route_shows_or_changes_what_another_tenant_has(
    world: tuple[World, Client], tmp_path: Path
) -> None:
    made, alice = world
    routes = [(method, path) for method, path in routes_with_accounts(tmp_path) if path not in SOCKETS]
    before = await possessions(made, alice)
    headers = {"Authorization": f"Bearer {made.tokens['mallory']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        mallory = Mallory(made, session)
        await look_around(mallory, made, routes)
        await interfere(mallory, made, routes)
        assert not mallory.leaks, "\n".join(mallory.leaks[:20])
        assert mallory.count > 1000
    assert await possessions(made, alice) == before


async def test_nothing_but_login_and_health_is_served_without_a_token(server: Served, tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        for method, pattern in routes_with_accounts(tmp_path):
            path = PLACEHOLDER.sub("0", pattern)
            for headers in ({}, {"Authorization": "Bearer csl_wrong"}, {"X-API-Key": ""}):
                async with session.request(method, f"{server[0].url}{path}", headers=headers) as answer:
                    allowed = {200, 401, 503} if path in OPEN else {401}
                    assert answer.status in allowed, (method, path, answer.status)


async def test_sockets_tell_only_their_own_tenant(world: tuple[World, Client]) -> None:
    made, alice = world
    await stop_all(alice)
    async with (
        Client(made.server.url, made.client_id, made.tokens["bob"]) as namesake,
        Client(made.server.url, token=made.tokens["bob"]) as stranger,
    ):
        subscription = {"clientId": made.client_id, "enabled": True}
        async with namesake.session.patch("/internal/logs/subscribe", json=subscription) as answer:
            assert answer.status == 200
        prompt = alices_graph(7, 4)
        run = await alice.run(prompt)
        anonymous = {"prompt": alices_graph(8, 4)}
        _, accepted = await alice.post("/prompt", anonymous)
        await until(lambda: alice.get(f"/history/{accepted['prompt_id']}"))
        assert run.previews, "Alice sees previews herself"
        await namesake.run(graph(9, 2))
        for client in (namesake, stranger):
            for message in await drained(client):
                assert isinstance(message, str)
                assert SECRET not in message
                assert run.prompt_id not in message
                assert accepted["prompt_id"] not in message


async def drained(client: Client) -> list[Any]:
    """Return what waits on a socket."""
    found = []
    while True:
        try:
            found.append((await client.socket.receive(timeout=0.3)).data)
        except TimeoutError:
            return found


async def test_equal_prompts_of_two_tenants_share_weights_but_no_results(world: tuple[World, Client]) -> None:
    made, alice = world
    await stop_all(alice)
    prompt, prompt_id = graph(31, 3), str(uuid.uuid4())
    async with Client(made.server.url, made.client_id, made.tokens["carol"]) as carol:
        first = await alice.run(prompt, prompt_id=prompt_id)
        assert await carol.get(f"/history/{prompt_id}") == {}
        second = await carol.run(prompt, prompt_id=prompt_id)
        assert second.cached_nodes() == []
        assert set(second.executed_nodes()) == set(first.executed_nodes()) | set(first.cached_nodes())
        pixels = [
            Image.open(io.BytesIO(await client.image(run.images()[0]))).tobytes()
            for client, run in ((alice, first), (carol, second))
        ]
        assert pixels[0] == pixels[1]
        again = await carol.run(prompt)
        assert again.executed_nodes() == []


async def test_two_tenants_can_run_the_same_prompt_id_at_once(world: tuple[World, Client]) -> None:
    made, alice = world
    running = made.prompt_ids[1]
    async with Client(made.server.url, made.client_id, made.tokens["bob"]) as bob:
        assert (await bob.post("/api/jobs/cancel", {"job_ids": [running]}))[1] == {"cancelled": False}
        result = await bob.run(graph(41, 3), prompt_id=running)
        assert result.outcome == "execution_success"
        nodes = [set(data["nodes"]) for kind, data in result.messages if kind == "progress_state"]
        assert all(each <= {*"1234567"} for each in nodes)
        assert [item[1] for item in (await alice.get("/queue"))["queue_running"]] == [running]
        assert await alice.get(f"/history/{running}") == {}
