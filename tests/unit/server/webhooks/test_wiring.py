"""A webhook is taken from the submission, shown to nobody, and called for its own prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.account import Account, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.views import RunEnded
from comfyserverless.control.webhooks.signing import FOLDER, TenantSecrets
from comfyserverless.core.config import Folders
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import PromptId, TenantId
from tests.support.fake_engine import FakeEngine
from tests.support.records import ended
from tests.support.tenants import FixedAccounts
from tests.support.webhooks import Receiver, is_signed
from tests.unit.server.conftest import StartClient

Client = TestClient[Any, Any]
ALICE = TenantId("alice")
TOKEN = {"Authorization": "Bearer csl_alice"}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    await made.start()
    yield made
    await made.stop()


def url_of(receiver: Receiver) -> str:
    assert receiver.server is not None
    return str(receiver.server.make_url("/hook?token=hidden"))


def body(webhook: Any) -> dict[str, Any]:
    return {"prompt": {}, "extra_data": {"webhook": webhook, "kept": 1}}


def end(engine: FakeEngine, prompt_id: str) -> None:
    record = ended(engine.records[PromptId(prompt_id)])
    engine.emit(RunEnded(record.prompt_id, record.tenant, record.client_id))


@pytest.fixture
def book() -> AccountBook:
    return AccountBook(FixedAccounts(Account(ALICE, tokens=(token_digest("csl_alice"),))))


async def test_ended_prompt_is_told_to_its_webhook_and_the_record_does_not_hold_it(
    client: Client, engine: FakeEngine, receiver: Receiver, folders: Folders
) -> None:
    webhook = {"url": url_of(receiver), "secret": "hidden secret"}
    answer = await client.post("/api/prompt", json=body(webhook))
    assert answer.status == 200
    prompt_id = (await answer.json())["prompt_id"]
    assert engine.requests[0].extra_data == {"kept": 1}
    assert "hidden" not in await (await client.get(f"/api/jobs/{prompt_id}")).text()
    end(engine, prompt_id)
    await receiver.wait_for(1)
    headers, content = receiver.calls[0]
    assert is_signed(headers, content, "hidden secret")
    told = json.loads(content)
    assert (told["prompt_id"], told["status"]) == (prompt_id, "completed")


async def test_without_a_secret_of_its_own_the_tenants_signs(
    client: Client, engine: FakeEngine, receiver: Receiver, folders: Folders
) -> None:
    answer = await client.post("/prompt", json=body(url_of(receiver)))
    end(engine, (await answer.json())["prompt_id"])
    await receiver.wait_for(1)
    secret = TenantSecrets(folders.user / FOLDER).secret_of(TenantId("default"))
    assert is_signed(*receiver.calls[0], secret)


@pytest.mark.parametrize("webhook", [3, "", "ftp://hidden/", {"url": "http://u:hidden@x/"}, {"other": 1}])
async def test_bad_webhook_is_refused_in_the_shape_of_the_route(
    client: Client, engine: FakeEngine, webhook: Any
) -> None:
    answer = await client.post("/prompt", json=body(webhook))
    told = await answer.json()
    assert (answer.status, told["error"]["type"], told["node_errors"]) == (400, "invalid_webhook", {})
    assert "hidden" not in json.dumps(told)
    assert not engine.requests


async def test_prompts_without_one_leave_nothing_on_the_disk(
    client: Client, engine: FakeEngine, folders: Folders
) -> None:
    for extra in ({}, {"webhook": None}):
        answer = await client.post("/prompt", json={"prompt": {}, "extra_data": extra})
        end(engine, (await answer.json())["prompt_id"])
    assert not (folders.user / FOLDER).exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
async def test_with_accounts_the_servers_own_network_is_out_of_reach(
    start_client: StartClient, engine: FakeEngine, book: AccountBook, host: str
) -> None:
    client = await start_client(book)
    answer = await client.post("/prompt", json=body(f"http://{host}:8188/"), headers=TOKEN)
    assert (answer.status, (await answer.json())["error"]["type"]) == (400, "invalid_webhook")


async def test_operator_opens_the_network_for_webhooks(
    start_client: StartClient, engine: FakeEngine, book: AccountBook, receiver: Receiver, folders: Folders
) -> None:
    client = await start_client(book, webhook_allow=("127.0.0.0/8",))
    answer = await client.post("/prompt", json=body(url_of(receiver)), headers=TOKEN)
    assert answer.status == 200
    end(engine, (await answer.json())["prompt_id"])
    await receiver.wait_for(1)
    assert is_signed(*receiver.calls[0], TenantSecrets(folders.user / FOLDER).secret_of(ALICE))


async def test_entry_that_cannot_be_ends_the_start(start_client: StartClient) -> None:
    with pytest.raises(ConfigError, match="webhook-allow"):
        await start_client(webhook_allow=("http://x",))
