"""Decide who sends a request, once for all routes: by token, by session, or nobody.

Without accounts everybody is the one tenant. With accounts a request without a valid credential reaches the
login page and nothing else. Tokens are never logged, stored or sent back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyserverless.control.accounts.account import Account, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.sessions import LIFETIME_S, Sessions
from comfyserverless.control.accounts.throttle import LoginThrottle
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId
from comfyserverless.server.border import Handler, Signal, place_of, problem
from comfyserverless.server.observing.scraping import Scraper

_log = logging.getLogger(__name__)

COOKIE = "comfyserverless_session"
LOGIN_PATH = "/login"
_OPEN_PATHS = frozenset({LOGIN_PATH, "/healthz", "/readyz"})
"""What anybody may ask for: it tells nothing about tenants."""

_SOCKET_PATHS = frozenset({"/ws", "/api/ws"})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_LOGIN_BYTES = 16_384
_CREDENTIALS = "Authorization, X-API-Key, Cookie"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends a request.

    user: the folder of settings and saved workflows. is_operator: may see what concerns all tenants.
    """

    tenant: TenantId
    user: str
    is_operator: bool
    max_request_bytes: int | None = None


_IDENTITY = web.RequestKey("identity", Identity)

SINGLE_USER = Identity(DEFAULT_TENANT, "default", is_operator=True)


_SCRAPER = Identity(TenantId("(metrics)"), "(metrics)", is_operator=True)
"""Who reads the metrics; no tenant is called so."""


class Gate:
    """Check credentials against the accounts. sessions_path: where sessions survive a restart, or None."""

    def __init__(
        self, book: AccountBook, sessions_path: Path | None = None, cors_origin: str | None = None
    ) -> None:
        self.book = book
        self._sessions = Sessions(sessions_path)
        self._throttle = LoginThrottle()
        self._cors_origin = cors_origin

    def identify(self, request: web.Request) -> Identity | None:
        """Return who sends a request; None if it has no valid credential.

        A token counts before a session. A session counts for another site's page only if that is configured.
        """
        token = _token_of(request)
        if token is not None:
            account = self.book.authenticate(token)
        else:
            session = request.cookies.get(COOKIE)
            if session is None or (_has_effect(request) and self.is_from_elsewhere(request.headers)):
                return None
            digest = self._sessions.token_of(session, time.time())
            account = None if digest is None else self.book.holder(digest)
        return None if account is None else _identity(account)

    def is_from_elsewhere(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a browser sent this for a page that this server did not serve."""
        origin = headers.get("Origin")
        if origin is not None and origin == self._cors_origin:
            return False
        site = headers.get("Sec-Fetch-Site")
        if site is not None:
            return site not in ("same-origin", "none")
        if origin is None:
            return False
        place = place_of(origin)
        return place[0] is None or place != place_of(f"//{headers.get('Host', '')}")

    def operators(self) -> list[TenantId]:
        """List the tenants that may see what concerns all."""
        accounts = self.book.accounts().values()
        return [account.tenant for account in accounts if account.is_operator and not account.is_disabled]

    def wait_s(self, address: str) -> float:
        """Return how long an address has to wait before it may try another login."""
        return self._throttle.wait_s(address, time.monotonic())

    def log_in(self, token: str, address: str) -> str | None:
        """Start a session; returns its secret identifier, None if the token is not valid."""
        account = self.book.authenticate(token)
        if account is None:
            self._throttle.note_failure(address, time.monotonic())
            _log.warning("A login from %s failed", address)
            return None
        return self._sessions.open(token_digest(token), time.time())

    def log_out(self, request: web.Request) -> None:
        """End the session of a request, if it has one."""
        session = request.cookies.get(COOKIE)
        if session is not None:
            self._sessions.end(session)

    def close(self) -> None:
        """Give back what the gate has open."""
        self._sessions.close_all()


def _identity(account: Account) -> Identity:
    return Identity(account.tenant, account.tenant, account.is_operator, account.limits.max_request_bytes)


def _token_of(request: web.Request) -> str | None:
    """Return the token that a request carries; in the address only a websocket may have it."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    key = request.headers.get("X-API-Key")
    if key is not None:
        return key.strip()
    return request.query.get("token") if request.path in _SOCKET_PATHS else None


def _has_effect(request: web.Request) -> bool:
    """Tell whether another site must not send a request in the user's name: it changes or listens."""
    is_socket = request.path in _SOCKET_PATHS or request.headers.get("Upgrade", "").lower() == "websocket"
    return request.method not in _SAFE_METHODS or is_socket


def identity_of(request: web.Request) -> Identity:
    """Return who sends a request, as the guard has found out."""
    return request[_IDENTITY]


def access_guard(gate: Gate | None, scraper: Scraper | None = None) -> Middleware:
    """Give every request its identity, or refuse it.

    gate None: there are no accounts; scraper: knows who may read the metrics without one.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        identity = SINGLE_USER if gate is None else gate.identify(request)
        if identity is None and scraper is not None and scraper.may_read(request):
            identity = _SCRAPER
        if identity is None:
            return await handler(request) if request.path in _OPEN_PATHS else _refuse(request)
        request[_IDENTITY] = identity
        return await handler(request)

    return guard


def request_limit(request: web.Request) -> int | None:
    """Return the largest body, in bytes, that the sender of a request may send; None for the server's limit."""
    return identity_of(request).max_request_bytes if has_identity(request) else _LOGIN_BYTES


def has_identity(request: web.Request) -> bool:
    """Tell whether the sender is known; only the open paths are served to others."""
    return _IDENTITY in request


def _refuse(request: web.Request) -> web.Response:
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=303, headers={"Location": LOGIN_PATH, "Cache-Control": "no-store"})
    answer = problem(request, "unauthorized", "This server needs a valid access token", 401)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def set_session(response: web.Response, request: web.Request, session: str) -> None:
    """Send a session to the browser, where scripts cannot read it and other sites cannot use it."""
    is_secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(
        COOKIE, session, max_age=LIFETIME_S, path="/", httponly=True, samesite="Lax", secure=is_secure
    )


def private_headers(gate: Gate | None) -> Signal:
    """With accounts, keep caches from showing one tenant's answers to another."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        if gate is None:
            return
        vary = response.headers.get("Vary")
        response.headers["Vary"] = _CREDENTIALS if vary is None else f"{vary}, {_CREDENTIALS}"
        cached = response.headers.get("Cache-Control")
        response.headers["Cache-Control"] = "private" if cached is None else cached.replace("public", "private")

    return add
