"""Let a monitoring system read the metrics with a token that opens nothing else."""

from __future__ import annotations

import hmac

from aiohttp import web

METRICS_PATH = "/metrics"


class Scraper:
    """Know the token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def may_read(self, request: web.Request) -> bool:
        """Tell whether a request is for the metrics, and has the token (`Authorization: Bearer`)."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        given = value.strip().encode("utf-8", "replace")
        return (
            request.method in ("GET", "HEAD")
            and request.path == METRICS_PATH
            and scheme.lower() == "bearer"
            and hmac.compare_digest(given, self._token)
        )
