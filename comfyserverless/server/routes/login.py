"""Log people in with their access token: one page, one session cookie. Only there if there are accounts."""

from __future__ import annotations

import html
import ipaddress
import math

from aiohttp import web

from comfyserverless.server.access import COOKIE, LOGIN_PATH, has_identity, identity_of, set_session
from comfyserverless.server.bodies import read_form
from comfyserverless.server.keys import GATE

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>comfyserverless: log in</title>
<style>
body {{ font: 16px system-ui, sans-serif; background: #1c1c1f; color: #eee; display: grid;
  place-items: center; min-height: 100vh; margin: 0 }}
form {{ width: 22rem; max-width: 90vw; display: grid; gap: .8rem }}
h1 {{ font-size: 1.2rem; margin: 0 }}
input, button {{ font: inherit; padding: .6rem; border-radius: .4rem; border: 1px solid #555 }}
input {{ background: #2a2a2e; color: inherit }}
button {{ background: #3a6df0; color: #fff; border-color: #3a6df0; cursor: pointer }}
p {{ margin: 0; color: #bbb; font-size: .9rem }}
p[role=alert] {{ color: #ff8a80 }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
_LOG_IN = """<form method="post" action="/login">
<h1>comfyserverless</h1>
{problem}<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
<p>The operator of this server gives you your token.</p>
</form>"""
_LOG_OUT = """<form method="post" action="/logout">
<h1>You are logged in as {tenant}</h1>
<a href="/" style="color: inherit">Open the page</a>
<button type="submit">Log out</button>
</form>"""


def _page(body: str, status: int = 200) -> web.Response:
    return web.Response(text=_PAGE.format(body=body), status=status, content_type="text/html", headers=_HEADERS)


def _log_in_page(problem: str = "", status: int = 200) -> web.Response:
    shown = f'<p role="alert">{html.escape(problem)}</p>\n' if problem else ""
    return _page(_LOG_IN.format(problem=shown), status)


def address_of(request: web.Request) -> str:
    """Return whose logins are counted together.

    A proxy on this machine says for whom it asks (the last of `X-Forwarded-For`): otherwise one stranger who
    fails could keep all others out. From elsewhere nobody is believed.
    """
    remote = request.remote or ""
    told = ",".join(request.headers.getall("X-Forwarded-For", ())).rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(told)) if ipaddress.ip_address(remote).is_loopback else remote
    except ValueError:
        return remote


async def show_login(request: web.Request) -> web.Response:
    """Ask for a token, or say who is logged in."""
    if has_identity(request):
        return _page(_LOG_OUT.format(tenant=html.escape(identity_of(request).tenant)))
    return _log_in_page()


async def log_in(request: web.Request) -> web.Response:
    """Check a token and start a session."""
    gate, address = request.app[GATE], address_of(request)
    if gate.is_from_elsewhere(request.headers):
        return _log_in_page("This form was sent by another site.", 403)
    token = (await read_form(request)).get("token")
    wait_s = gate.wait_s(address)  # looked at last: while a form arrives others fail
    if wait_s > 0:
        answer = _log_in_page("Too many failed logins. Try again in a minute.", 429)
        answer.headers["Retry-After"] = str(math.ceil(wait_s))
        return answer
    session = gate.log_in(token.strip(), address) if isinstance(token, str) else None
    if session is None:
        return _log_in_page("This token is not valid.", 401)
    answer = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
    set_session(answer, request, session)
    return answer


async def log_out(request: web.Request) -> web.Response:
    """End the session."""
    request.app[GATE].log_out(request)
    answer = web.Response(status=303, headers={"Location": LOGIN_PATH, "Cache-Control": "no-store"})
    answer.del_cookie(COOKIE, path="/")
    return answer


ROUTES = (
    web.get(LOGIN_PATH, show_login),
    web.post(LOGIN_PATH, log_in),
    web.post("/logout", log_out),
)
