"""Send random messages over websockets, and see that the server goes on answering."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import aiohttp

from tests.support.fuzz import values
from tests.support.fuzz.judging import ENDS_WITHIN_S, Report

_KNOWN: tuple[Any, ...] = (
    {"type": "feature_flags", "data": {"supports_preview_metadata": True}},
    {"type": "logs", "data": {"enabled": True}},
    {"type": "status", "data": {"sid": "x"}},
)


def draw_message(rng: random.Random) -> str | bytes:
    """Draw a text or binary message."""
    kind = rng.random()
    if kind < 0.2:
        return rng.randbytes(rng.choice((0, 1, 4, 8, 100, 70_000)))
    if kind < 0.3:
        return rng.choice(
            ("", "{", "[" * 50_000, '{"type":' * 9000, "NaN", "null", '{"type": "feature_flags"}')
        )
    given = values.mutate(rng, rng.choice(_KNOWN)) if kind < 0.8 else values.value(rng)
    try:
        return json.dumps(given)
    except RecursionError:
        return "[" * 5000


async def judge_messages(session: aiohttp.ClientSession, rng: random.Random, report: Report) -> None:
    """Open a websocket, send messages over it, and note what goes wrong."""
    queries = (
        "",
        "?clientId=fuzz",
        "?clientId=",
        "?clientId=%00",
        "?clientId=" + "x" * 3000,
        "?clientId=%ff&x=1",
    )
    sent: list[str | bytes] = []
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            async with session.ws_connect("/ws" + rng.choice(queries), max_msg_size=0) as socket:
                first = await socket.receive()
                if first.type is aiohttp.WSMsgType.TEXT and json.loads(first.data)["type"] != "status":
                    report.find(f"the first message is {first.data[:200]}", "websocket")
                for _ in range(rng.randrange(1, 8)):
                    message = draw_message(rng)
                    sent.append(message)
                    if isinstance(message, str):
                        await socket.send_str(message)
                    else:
                        await socket.send_bytes(message)
                await socket.ping()
        report.counts["websocket"] += 1
    except TimeoutError:
        report.find("a websocket hangs", repr(sent)[:2000])
    except aiohttp.WSServerHandshakeError as exc:
        report.counts[f"websocket refused {exc.status}"] += 1
        if exc.status >= 500:
            report.find(f"a websocket is refused by {exc.status}", repr(sent)[:2000])
    except (aiohttp.ClientError, ConnectionError) as exc:
        report.counts[f"websocket {type(exc).__name__}"] += 1
