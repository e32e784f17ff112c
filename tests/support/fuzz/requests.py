"""Draw HTTP requests for every route that the router has, and judge the answers: no 5xx, no hang."""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from tests.support.fuzz import values
from tests.support.fuzz.graphs import ROOT
from tests.support.fuzz.judging import ENDS_WITHIN_S, Report
from tests.support.tenants import routes_with_accounts

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WORDS = (
    "0",
    "checkpoints",
    "output",
    "input",
    "workflows",
    "a.json",
    "sd15_tiny.safetensors",
    "fuzz_00001_.png",
)
_QUERY_NAMES = """
    filename subfolder type preview channel rand dir recurse split full_info overwrite path status limit offset
    max_items sort_by sort_order workflow_id clientId token since until by days tenant
    format file after prompt_id
"""
QUERIES = tuple(_QUERY_NAMES.split())
HEADERS = {
    "Range": (
        "bytes=0-",
        "bytes=-1",
        "bytes=9-2",
        "bytes=x",
        "lines=1-2",
        "bytes=0-1,3-4",
        "bytes=99999999999-",
    ),
    "If-None-Match": ('"x"', "*", "\xe4"),
    "If-Modified-Since": ("x", "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 9999 00:00:00 GMT"),
    "Comfy-User": ("default", "../x", "\xe4", ""),
    "Authorization": ("Bearer x", "Basic eDp4", "Bearer", "\xff"),
    "Cookie": ("a=b", "comfyserverless_session=x", "=;;=", "\xe4"),
    "Accept": ("image/webp", "*/*", "text/html"),
    "Accept-Encoding": ("gzip", "br", "identity;q=0", "x"),
    "X-Forwarded-For": ("1.2.3.4", "x"),
}
TYPES = (
    "application/json",
    "text/plain",
    "text/plain; charset=utf-7",
    "application/json; charset=nope",
    "multipart/form-data",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "application/octet-stream",
    "\xe4/",
    "",
)
MEANT_5XX = re.compile(r"^(/api)?/(assets|tags|tasks)(/|\?|$)")
"""Routes that say 503 as ComfyUI does when its assets are off."""

#: Answers that never end by themselves, or end the server's use to others.
_SKIPPED = frozenset({"/ws", "/api/ws"})


@dataclass
class Drawn:
    """One request."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.headers} {(self.body or b'')[:600]!r}"


class RequestMaker:
    """Draw requests for the routes of the application; base: an empty folder."""

    def __init__(self, base: Path) -> None:
        found = sorted(set(routes_with_accounts(base)))
        self.routes = [(method, path) for method, path in found if path not in _SKIPPED]
        data = ROOT / "tests" / "contract" / "data"
        prompts = json.loads((data / "prompt.json").read_text())
        self._bodies: list[Any] = [case["request"] for case in prompts.values() if "request" in case]
        self._bodies += [
            {"clear": True},
            {"delete": ["x"]},
            {"prompt_id": "x"},
            {"unload_models": True, "free_memory": True},
            {"clientId": "x", "enabled": True},
            {"Comfy.A": 1},
            {"username": "x"},
            {"token": "x"},
            {"name": "x", "tags": []},
        ]

    def draw(self, rng: random.Random, route: tuple[str, str] | None = None) -> Drawn:
        """Draw a request for a route."""
        method, pattern = route or rng.choice(self.routes)
        if rng.random() < 0.15 or method == "*":
            method = rng.choice(METHODS)
        path = re.sub(
            r"\{[^}]*\}", lambda _: quote(self._word(rng), safe="/" if rng.random() < 0.3 else ""), pattern
        )
        if rng.random() < 0.5:
            path += "?" + self._query(rng)
        headers = {name: rng.choice(choices) for name, choices in HEADERS.items() if rng.random() < 0.08}
        if rng.random() < 0.05:
            headers["Origin"] = rng.choice(("http://evil.example", "null", "\xe4", "http://127.0.0.1"))
        body = None
        if method not in ("GET", "HEAD", "OPTIONS") or rng.random() < 0.05:
            body, kind = self._body(rng)
            if kind:
                headers["Content-Type"] = kind
        return Drawn(method, path, headers, body)

    def _word(self, rng: random.Random) -> str:
        word = rng.choice(WORDS) if rng.random() < 0.5 else values.text(rng)
        return (
            (word or "x").encode("utf-8", "surrogatepass").decode("latin-1")
            if rng.random() < 0.1
            else (word.encode("utf-8", "replace").decode() or "x")
        )

    def _query(self, rng: random.Random) -> str:
        pairs = []
        for _ in range(rng.randrange(1, 5)):
            value = rng.choice((*WORDS, "-1", "1e9", str(2**70), "true", "nan", "../..", values.text(rng)))
            pairs.append((rng.choice(QUERIES), value.encode("utf-8", "replace")[:2000]))
        query = urlencode(pairs)
        return query if rng.random() < 0.9 else query + rng.choice(("&%", "&=%ff", "&&&;", "&a[]=1", "&%00"))

    def _body(self, rng: random.Random) -> tuple[bytes, str]:
        kind = rng.random()
        if kind < 0.6:
            given = values.mutate(rng, rng.choice(self._bodies)) if kind < 0.45 else values.value(rng)
            content = values.dumped(given)
            return content, rng.choice(TYPES) if rng.random() < 0.3 else "application/json"
        if kind < 0.85:
            return self._form(rng)
        raw = (
            b"",
            b"{",
            b"[" * 100_000,
            b"\xff\xfe",
            b'{"a":' * 20_000,
            b"null",
            b'"\\ud800"',
            b"NaN",
            b"1" * 9999,
        )
        return rng.choice(raw), rng.choice(TYPES)

    def _form(self, rng: random.Random) -> tuple[bytes, str]:
        """Draw a form as uploads send it, with faults."""
        parts = []
        for _ in range(rng.randrange(4)):
            name = rng.choice(("image", "subfolder", "type", "overwrite", "original_ref", "token", "x"))
            filename = rng.choice(
                ("", '; filename="a.png"', '; filename="../b.png"', '; filename=""', "; filename=\xe4")
            )
            value = rng.choice(
                (b"x", b"\x89PNG\r\n\x1a\n", b'{"filename": "a.png"}', b"", b"\xff" * 1000, b"true")
            )
            disposition = f'Content-Disposition: form-data; name="{name}"{filename}'
            extra = rng.choice(("", "\r\nContent-Type: image/png", "\r\nContent-Transfer-Encoding: base64"))
            parts.append(b"--x\r\n" + disposition.encode() + extra.encode() + b"\r\n\r\n" + value + b"\r\n")
        end = b"--x--\r\n" if rng.random() < 0.85 else rng.choice((b"", b"--y--", b"--x\r\n"))
        return b"".join(parts) + end, "multipart/form-data; boundary=x"


async def judge_request(session: aiohttp.ClientSession, drawn: Drawn, report: Report) -> None:
    """Send a request and note what went wrong."""
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            url = URL(drawn.path, encoded=True)
            async with session.request(
                drawn.method, url, headers=drawn.headers, data=drawn.body, allow_redirects=False
            ) as answer:
                text = await answer.read()
                report.counts[f"request {answer.status}"] += 1
                is_meant = answer.status == 503 and MEANT_5XX.match(drawn.path)
                if answer.status >= 500 and not is_meant:
                    report.find(f"{answer.status}: {text[:500]!r}", str(drawn))
    except TimeoutError:
        report.find(f"no answer in {ENDS_WITHIN_S:g} s", str(drawn))
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as exc:
        report.counts[f"request {type(exc).__name__}"] += 1
        if not isinstance(exc, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
            report.find(f"the connection broke: {exc!r}", str(drawn))
    except (ValueError, aiohttp.ClientError) as exc:  # the client will not send it
        report.counts[f"request unsendable {type(exc).__name__}"] += 1
