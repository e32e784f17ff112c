"""Other sites are kept out, errors say nothing about the inside, caches and limits hold."""

from __future__ import annotations

import logging

import pytest

from comfyserverless.core.errors import CapacityError, PromptError
from comfyserverless.server.border import is_foreign
from tests.support.fake_engine import FakeEngine
from tests.unit.server.conftest import StartClient

LOOPBACK = {"Host": "127.0.0.1:8188"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        (LOOPBACK, False),
        ({**LOOPBACK, "Sec-Fetch-Site": "same-origin"}, False),
        ({**LOOPBACK, "Sec-Fetch-Site": "cross-site"}, True),
        ({"Host": "example.org", "Sec-Fetch-Site": "cross-site"}, True),
        ({**LOOPBACK, "Origin": "http://127.0.0.1:8188"}, False),
        ({**LOOPBACK, "Origin": "http://127.0.0.1"}, False),
        ({**LOOPBACK, "Origin": "http://127.0.0.1:9000"}, True),
        ({**LOOPBACK, "Origin": "https://evil.example"}, True),
        ({**LOOPBACK, "Origin": "null"}, True),
        ({"Host": "localhost:8188", "Origin": "http://localhost:8188"}, False),
        ({"Host": "localhost", "Origin": "http://127.0.0.1"}, True),
        ({"Host": "[::1]:8188", "Origin": "http://[::1]:8188"}, False),
        ({"Host": "[::1]:8188", "Origin": "http://evil.example"}, True),
        ({"Host": "gpu.example", "Origin": "http://other.example"}, False),
        ({**LOOPBACK, "Origin": "http://[bad"}, True),
        ({"Host": "localhost.", "Origin": "http://evil.example"}, True),
        ({"Host": "[::ffff:127.0.0.1]", "Origin": "http://evil.example"}, True),
        ({"Host": "0.0.0.0:8188", "Origin": "http://evil.example"}, True),
        ({"Host": "0.0.0.0:8188", "Origin": "http://0.0.0.0:8188"}, False),
        ({"Host": "localhost:99999", "Origin": "http://evil.example"}, True),
        ({"Host": "", "Origin": "null"}, True),
    ],
)
def test_request_of_another_site_is_recognised(headers: dict[str, str], expected: bool) -> None:
    assert is_foreign(headers) is expected


async def test_foreign_page_can_neither_post_nor_open_a_socket(start_client: StartClient) -> None:
    client = await start_client()
    foreign = {"Origin": "http://evil.example"}
    assert (await client.post("/prompt", json={"prompt": {}}, headers=foreign)).status == 403
    assert (await client.get("/ws", headers=foreign)).status == 403


async def test_configured_origin_may_call_and_gets_cors_headers(start_client: StartClient) -> None:
    client = await start_client(cors_origin="http://studio.example")
    answer = await client.get("/prompt", headers={"Origin": "http://studio.example"})
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "http://studio.example"
    assert (await client.get("/nope")).headers["Access-Control-Allow-Origin"] == "http://studio.example"


async def test_options_are_answered_without_reaching_a_handler(start_client: StartClient) -> None:
    client = await start_client()
    assert (await client.options("/prompt")).status == 200
    assert (await client.options("/no/such/route")).status == 200


async def test_unexpected_fault_is_a_bare_500_and_logged_once(
    start_client: StartClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    client = await start_client()
    engine.failure = RuntimeError("/secret/path is broken")
    with caplog.at_level(logging.ERROR):
        answer = await client.post("/prompt", json={"prompt": {"1": {}}})
    assert answer.status == 500
    text = await answer.text()
    assert "secret" not in text
    assert (await answer.json())["error"]["type"] == "server_error"
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize(("error", "status"), [(PromptError("bad"), 400), (CapacityError("full"), 503)])
async def test_own_errors_have_their_status(
    start_client: StartClient, engine: FakeEngine, error: Exception, status: int
) -> None:
    client = await start_client()
    engine.failure = error
    answer = await client.post("/api/prompt", json={"prompt": {}})
    assert answer.status == status
    assert (await answer.json())["error"]["message"] == str(error)


async def test_too_large_body_is_refused_with_the_limit(start_client: StartClient) -> None:
    client = await start_client(max_upload_bytes=1000)
    answer = await client.post("/settings/x", data=b'"' + b"a" * 2000 + b'"')
    assert answer.status == 413
    assert "1000" in (await answer.json())["error"]
    assert (await client.post("/settings/x", data=b'"fits"')).status == 200


async def test_too_large_body_without_announced_length_is_refused(start_client: StartClient) -> None:
    client = await start_client(max_upload_bytes=1000)

    async def pieces():  # type: ignore[no-untyped-def]
        for _ in range(4):
            yield b"a" * 500

    assert (await client.post("/userdata/a.txt", data=pieces())).status == 413
    answer = await client.post("/prompt", data=pieces())
    assert answer.status == 413
    assert (await answer.json())["error"]["type"] == "too_large"


async def test_body_that_is_not_encoded_as_declared_is_a_400(
    start_client: StartClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await start_client()
    for path in ("/prompt", "/settings", "/userdata/a.txt", "/upload/image"):
        headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=x"}
        answer = await client.post(path, data=b"not gzip at all", headers=headers)
        assert answer.status == 400, path
        assert "error" in await answer.json()
    assert not [record for record in caplog.records if record.name.startswith("comfyserverless")]


async def test_page_is_never_cached_code_is_revalidated_pictures_are_kept(start_client: StartClient) -> None:
    client = await start_client()
    cached = {
        path: (await client.get(path)).headers.get("Cache-Control")
        for path in ("/", "/scripts/app.js", "/assets/favicon.ico", "/nope.png", "/system_stats")
    }
    assert cached["/"] is not None
    assert "no-store" in cached["/"]
    assert cached["/scripts/app.js"] == "no-cache"
    assert cached["/nope.png"] == "public, max-age=3600"
    assert cached["/system_stats"] is None


async def test_json_is_compressed_only_if_configured_and_accepted(start_client: StartClient) -> None:
    plain, compressing = await start_client(), await start_client(compress=True)
    accept = {"Accept-Encoding": "gzip"}
    assert "Content-Encoding" not in (await plain.get("/extensions", headers=accept)).headers
    answer = await compressing.get("/extensions", headers=accept)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert await answer.json()
    refusing = await compressing.get("/extensions", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in refusing.headers
