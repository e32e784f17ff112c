"""A real server calls webhooks when prompts have ended, also after it was killed, and shows them to nobody."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyserverless.control.webhooks.signing import FOLDER, TenantSecrets
from comfyserverless.core.ids import TenantId
from tests.process.test_recovery import graph
from tests.support.client import Client
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.tenants import add_tenant
from tests.support.webhooks import Receiver, is_signed

WITHIN_S = PATIENCE_S


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    yield made
    await made.stop()


def told(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in receiver.calls]


async def test_call_tells_of_a_record_that_is_there_and_leaves_no_trace(
    start_server: Callable[..., RunningServer], tiny_models: Path, receiver: Receiver
) -> None:
    server = start_server(models=tiny_models)
    url = await receiver.start()
    async with Client(server.url) as client:
        extra = {"webhook": {"url": url, "secret": "hidden secret"}, "extra_pnginfo": {"workflow": {"id": "w"}}}
        result = await client.run(graph(1, 2), extra_data=extra)
        await receiver.wait_for(1, WITHIN_S)
        (call,) = told(receiver)
        assert call["prompt_id"] == result.prompt_id
        assert call["status"] == "completed"
        assert call["outputs"] == result.history["outputs"]
        assert call["timings"]["execution_s"] > 0
        assert is_signed(*receiver.calls[0], "hidden secret")
        picture = await client.image(result.images()[0])
        job = await client.get(f"/api/jobs/{result.prompt_id}")
    with Image.open(io.BytesIO(picture)) as opened:
        texts = json.dumps(dict(opened.info), default=str)
    records = b"".join(path.read_bytes() for path in server.folder("user").glob("records.sqlite3*"))
    for shown in (texts, json.dumps(result.history), json.dumps(job), server.log()):
        assert "hidden" not in shown
    assert b"hidden" not in records


async def test_calls_outlive_the_server_that_took_them(
    tiny_models: Path, tmp_path: Path, receiver: Receiver
) -> None:
    place = socket.socket()  # taken, so that nobody else gets the port; and nobody listens there yet
    place.bind(("127.0.0.1", 0))
    port = place.getsockname()[1]
    options = ServerOptions(tmp_path / "base", models=tiny_models)
    webhook = {"webhook": f"http://127.0.0.1:{port}/hook"}
    first = RunningServer.start(options)
    async with Client(first.url) as client:
        done = await client.run(graph(1, 2), extra_data=webhook)  # nobody listens: it will be tried again
        interrupted = await client.submit(graph(2, 12), extra_data=webhook)
        while (message := json.loads((await client.socket.receive()).data))["type"] != "progress":
            assert message["type"] != "execution_error"
        waiting = await client.submit(graph(3, 2), extra_data=webhook)
        first.process.kill()
        first.process.wait(PATIENCE_S)
    await receiver.start(place)
    second = RunningServer.start(options)
    try:
        await receiver.wait_for(3, WITHIN_S)
    finally:
        second.stop()
    assert sorted(call["prompt_id"] for call in told(receiver)) == sorted(
        [done.prompt_id, interrupted, waiting]
    )
    assert {call["status"] for call in told(receiver)} == {"completed"}
    secret = TenantSecrets(second.folder("user") / FOLDER).secret_of(TenantId("default"))
    assert all(is_signed(*call, secret) for call in receiver.calls)


async def test_tenants_cannot_look_into_the_network_and_sign_with_secrets_of_their_own(
    start_server: Callable[..., RunningServer], tmp_path: Path, receiver: Receiver
) -> None:
    base = tmp_path / "server0"
    tokens = {name: add_tenant(base, name) for name in ("alice", "bob")}
    server = start_server("--webhook-allow", "127.0.0.1", "hooks.internal")
    url = await receiver.start()
    image = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 1}}
    }
    image["2"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    for name, token in tokens.items():
        async with Client(server.url, token=token) as client:
            for bad in ("http://[::1]:1/", "http://10.0.0.1/", "http://169.254.169.254/latest", "gopher://x/"):
                status, answer = await client.post("/prompt", {"prompt": image, "extra_data": {"webhook": bad}})
                assert (status, answer["error"]["type"]) == (400, "invalid_webhook")
            before = len(receiver.calls)
            await client.submit(image, extra_data={"webhook": url})
            await receiver.wait_for(before + 1, WITHIN_S)
            secret = TenantSecrets(base / "user" / FOLDER).secret_of(TenantId(name))
            assert is_signed(*receiver.calls[-1], secret)
