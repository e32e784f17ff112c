"""Accounts as people meet them: the tenant command, tokens, the login page, limits, and who used how much."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from tests.process.test_recovery import endless, graph
from tests.support.client import Client
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.striking import has_ended, until, until_idle
from tests.support.tenants import ROOT, add_tenant, tenant_command

NAMES = ("alice", "bob")


@pytest.fixture(scope="module")
def served(
    tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningServer, dict[str, str]]]:
    base = tmp_path_factory.mktemp("accounts")
    tokens = {name: add_tenant(base, name) for name in NAMES}
    tokens["ops"] = add_tenant(base, "ops", "--operator", "--weight", "3")
    running = RunningServer.start(ServerOptions(base, models=tiny_models))
    try:
        yield running, tokens
    finally:
        running.stop()


Served = tuple[RunningServer, dict[str, str]]


async def test_all_ways_to_send_a_token_lead_to_the_same_tenant(served: Served) -> None:
    server, tokens = served
    ways = ({"Authorization": f"Bearer {tokens['alice']}"}, {"X-API-Key": tokens["alice"]})
    async with aiohttp.ClientSession(server.url) as session:
        for headers in ways:
            async with session.get("/comfyserverless/tenants", headers=headers) as answer:
                assert [each["tenant"] for each in (await answer.json())["tenants"]] == ["alice"]
        async with session.ws_connect(f"/ws?token={tokens['alice']}") as socket:
            assert (await socket.receive_json())["type"] == "status"
        async with session.get("/prompt", params={"token": tokens["alice"]}) as answer:
            assert answer.status == 401


async def test_browser_logs_in_with_a_cookie_that_scripts_and_other_sites_cannot_use(served: Served) -> None:
    server, tokens = served
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(server.url, cookie_jar=jar) as browser:
        async with browser.get("/", headers={"Accept": "text/html"}) as answer:
            assert answer.url.path == "/login"
            assert "Access token" in await answer.text()
        async with browser.post("/login", data={"token": "csl_wrong"}) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
        async with browser.post("/login", data={"token": tokens["alice"]}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Lax" in cookie
            assert tokens["alice"] not in cookie
        async with browser.get("/") as answer:
            assert answer.url.path == "/"
            assert answer.status == 200
        async with browser.ws_connect("/ws", origin=server.url) as socket:
            assert (await socket.receive_json())["type"] == "status"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await browser.ws_connect("/ws", origin="http://127.0.0.1:1")
        async with browser.post("/settings", json={}, headers={"Origin": "http://127.0.0.1:1"}) as answer:
            assert answer.status in (401, 403)
        async with browser.post("/logout", allow_redirects=False) as answer:
            assert answer.status == 303
        async with browser.get("/prompt") as answer:
            assert answer.status == 401


async def test_token_is_written_nowhere(served: Served) -> None:
    server, tokens = served
    async with Client(server.url, token=tokens["alice"]) as alice:
        run = await alice.run(graph(1, 2), extra_data={"extra_pnginfo": {"workflow": {"id": "w"}}})
        assert run.outcome == "execution_success", run.messages[-1]
        broken = await alice.post("/prompt", {"prompt": {"1": {"class_type": tokens["bob"][:4], "inputs": {}}}})
        assert tokens["alice"] not in str(broken)
        picture = Image.open(io.BytesIO(await alice.image(run.images()[0])))
        assert tokens["alice"] not in str(picture.info)
        assert tokens["alice"] not in str(run.history)
    written = [path for path in server.options.base.rglob("*") if path.is_file()]
    assert server.folder("user") / "accounts.sqlite3" in written
    for path in written:
        assert not [name for name, token in tokens.items() if token.encode() in path.read_bytes()], path


async def test_full_queue_is_answered_with_429_and_room_is_made_by_waiting(served: Served) -> None:
    server, tokens = served
    tenant_command(server.options.base, "limit", "bob", "--max-queued", "1")
    async with Client(server.url, token=tokens["bob"]) as bob:
        await bob.submit(endless(1))
        await until(lambda: is_running(bob))
        waiting = await bob.submit(graph(2, 2))
        async with bob.session.post("/prompt", json={"prompt": graph(3, 2)}) as answer:
            body = await answer.json()
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) > 0
            assert body["error"].keys() == {"type", "message", "details", "extra_info"}
            assert body["node_errors"] == {}
        async with Client(server.url, token=tokens["alice"]) as alice:
            await alice.submit(graph(4, 2))
            await until_idle(alice)
        await bob.post("/queue", {"delete": [waiting]})
        await bob.submit(graph(5, 2))
        await bob.post("/queue", {"clear": True})
        await bob.post("/interrupt", {})
        await until_idle(bob)
    tenant_command(server.options.base, "limit", "bob", "--max-queued", "none")


async def is_running(client: Client) -> bool:
    return bool((await client.get("/queue"))["queue_running"])


async def test_larger_request_than_a_tenant_may_send_is_refused_however_it_is_sent(served: Served) -> None:
    server, tokens = served
    tenant_command(server.options.base, "limit", "bob", "--max-request-size", "0.01")

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 1000

    async with (
        Client(server.url, token=tokens["bob"]) as bob,
        Client(server.url, token=tokens["alice"]) as alice,
    ):
        for client, status in ((bob, 413), (alice, 200)):
            for data in (b"x" * 20_000, chunks()):
                async with client.session.post("/userdata/large.txt", data=data) as answer:
                    assert answer.status == status
    tenant_command(server.options.base, "limit", "bob", "--max-request-size", "none")


async def test_models_that_a_tenant_may_not_use_do_not_exist_for_it(served: Served) -> None:
    server, tokens = served
    tenant_command(server.options.base, "limit", "bob", "--models", "checkpoints/sdxl*", "vae/*")
    async with Client(server.url, token=tokens["bob"]) as bob:
        loader = (await bob.get("/object_info/CheckpointLoaderSimple"))["CheckpointLoaderSimple"]
        assert loader["input"]["required"]["ckpt_name"][0] == ["sdxl_tiny.safetensors"]
        assert await bob.get("/models/checkpoints") == ["sdxl_tiny.safetensors"]
        assert await bob.get("/models/loras") == []
        assert await bob.get("/embeddings") == []
        listed = await bob.get("/experiment/models/checkpoints")
        assert [each["name"] for each in listed] == ["sdxl_tiny.safetensors"]
        async with bob.session.get("/view_metadata/checkpoints?filename=sd15_tiny.safetensors") as answer:
            assert answer.status == 404
        status, refused = await bob.post("/prompt", {"prompt": graph(1, 2)})
        assert status == 400
        errors = [error for node in refused["node_errors"].values() for error in node["errors"]]
        assert [error["type"] for error in errors] == ["value_not_in_list"]
        assert "sd15_style" not in str(refused)
    tenant_command(server.options.base, "limit", "bob", "--models", "all")
    async with Client(server.url, token=tokens["bob"]) as bob:
        assert "sd15_tiny.safetensors" in await bob.get("/models/checkpoints")


@pytest.mark.parametrize(
    ("patterns", "is_used"), [(("checkpoints/*",), False), (("checkpoints/*", "embeddings/tiny*"), True)]
)
async def test_textual_inversions_work_only_for_those_who_may_use_them(
    served: Served, patterns: tuple[str, ...], is_used: bool
) -> None:
    server, tokens = served
    tenant_command(server.options.base, "limit", "bob", "--models", *patterns)
    pictures = []
    async with Client(server.url, token=tokens["bob"]) as bob:
        for text in ("a cat, embedding:tinystyle", "a cat, embedding:no_such_style"):
            prompt = graph(5, 2)
            prompt["2"]["inputs"]["text"] = text
            run = await bob.run(prompt)
            pictures.append(Image.open(io.BytesIO(await bob.image(run.images()[0]))).tobytes())
    tenant_command(server.options.base, "limit", "bob", "--models", "all")
    assert (pictures[0] != pictures[1]) is is_used


async def test_disabled_tenant_is_cut_off_at_once_and_its_work_ends(served: Served) -> None:
    server, _ = served
    token = add_tenant(server.options.base, "guest")
    async with Client(server.url, token=token) as guest:
        prompt_id = await guest.submit(endless(1))
        await guest.submit(endless(2))
        await until(lambda: is_running(guest))
        tenant_command(server.options.base, "disable", "guest")
        async with guest.session.get("/prompt") as answer:
            assert answer.status == 401
        async with asyncio.timeout(PATIENCE_S):
            async for _ in guest.socket:
                pass
    tenant_command(server.options.base, "enable", "guest")
    async with Client(server.url, token=token) as guest:
        await until(lambda: has_ended(guest, prompt_id))
        assert (await guest.get("/queue"))["queue_pending"] == []


async def test_revoked_token_ends_while_the_new_one_works(served: Served) -> None:
    server, _ = served
    old = add_tenant(server.options.base, "dora")
    new = tenant_command(server.options.base, "token", "dora", "--replace").split()[-1]
    async with aiohttp.ClientSession(server.url) as session:
        for token, status in ((old, 401), (new, 200)):
            async with session.get("/prompt", headers={"X-API-Key": token}) as answer:
                assert answer.status == status


async def test_usage_is_counted_in_seconds_and_shown_to_its_tenant_and_to_operators(served: Served) -> None:
    server, tokens = served
    async with Client(server.url, token=tokens["alice"]) as alice:
        before = (await alice.get("/comfyserverless/tenants"))["tenants"][0]["service_s"]["gpu"]
        await alice.run(graph(77, 20))
        await until_idle(alice)
        (mine,) = (await alice.get("/comfyserverless/tenants"))["tenants"]
        assert mine["service_s"]["gpu"] > before
        assert (mine["pending"], mine["running"]) == (0, 0)
    async with Client(server.url, token=tokens["ops"]) as ops:
        seen = {each["tenant"]: each for each in (await ops.get("/comfyserverless/tenants"))["tenants"]}
        assert set(seen) >= {"alice", "bob", "ops"}
        assert seen["alice"]["service_s"] == mine["service_s"]
        assert seen["ops"]["weight"] == 3.0


async def test_operators_read_the_console_and_tenants_their_own_lines(served: Served) -> None:
    server, tokens = served
    async with Client(server.url, token=tokens["alice"]) as alice:
        run = await alice.run(graph(78, 2))
    lines = {}
    for name in ("alice", "bob", "ops"):
        async with Client(server.url, token=tokens[name]) as client:
            lines[name] = await client.get("/internal/logs")
    assert run.prompt_id in lines["alice"]
    assert run.prompt_id in lines["ops"]
    assert run.prompt_id not in lines["bob"]
    assert "Open http" in lines["ops"]
    assert "Open http" not in lines["alice"]


async def test_accounts_can_come_from_a_file_that_is_read_again(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    lines = tenant_command(tmp_path, "token", "erik", "--toml")
    assert not (tmp_path / "user").exists()
    token = lines.split()[lines.split().index("now):") + 1]
    file = tmp_path / "tenants.toml"
    file.write_text(lines)
    server = start_server("--tenants", str(file))
    async with Client(server.url, token=token) as erik:
        assert (await erik.get("/comfyserverless/tenants"))["tenants"][0]["tenant"] == "erik"
        file.write_text(lines + "disabled = true\n")
        async with erik.session.get("/prompt") as answer:
            assert answer.status == 401


async def test_guessing_logins_is_slowed_down(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    token = add_tenant(tmp_path / "server0", "fay")
    server = start_server()
    async with aiohttp.ClientSession(server.url) as session:
        statuses = []
        for _ in range(11):
            async with session.post("/login", data={"token": "csl_guess"}) as answer:
                statuses.append(answer.status)
        assert statuses == [401] * 10 + [429]
        async with session.post("/login", data={"token": token}) as answer:
            assert answer.status == 429
            assert 0 < int(answer.headers["Retry-After"]) <= 60
        async with session.get("/prompt", headers={"X-API-Key": token}) as answer:
            assert answer.status == 200


async def test_example_of_two_tenants_shows_light_prompts_passing_a_heavy_one(served: Served) -> None:
    server, _ = served
    tokens = [add_tenant(server.options.base, name) for name in ("heavy", "light")]
    command = [str(ROOT / "graphs/two_tenants.py"), "--url", server.url, "--seconds", "4"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        *("--heavy", tokens[0], "--light", tokens[1]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    assert re.search(r"^light: prompt 1 took \d", text, re.MULTILINE), text
    seconds = dict(re.findall(r"^(heavy|light): ([\d.]+) s of GPU time", text, re.MULTILINE))
    assert all(float(seconds[name]) > 0 for name in ("heavy", "light")), text
