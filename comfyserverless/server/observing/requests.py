"""Count requests by the template of their route, which are few, never by their path."""

from __future__ import annotations

import time
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from comfyserverless.control.metrics.tallies import CounterTally, HistogramTally
from comfyserverless.server.border import Handler

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNMATCHED = "(none)"
_CLIENT_GONE = 499
_SWITCHED = 101


class RequestMetrics(Collector):
    """Measure the requests of one server; `sockets` is set by whoever knows how many are open."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = CounterTally(
            "comfyserverless_http_requests",
            "Requests that were answered; a websocket counts when it ends",
            ("method", "route", "status"),
        )
        self._seconds = HistogramTally(
            "comfyserverless_http_request_duration_seconds",
            "Time to answer requests, without websockets",
            "route",
            _SECONDS,
        )
        self.sockets = 0
        registry.register(self)

    def note(self, request: web.Request, status: int, duration_s: float) -> None:
        """Count one request. status: 499 if the client went away before the answer."""
        method = request.method if request.method in _METHODS else "other"
        route = _route_of(request)
        self._requests.add((method, route, str(status)))
        if status != _SWITCHED:
            self._seconds.observe(route, duration_s)

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: what there is depends on what was asked for."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return what was counted so far."""
        sockets = GaugeMetricFamily("comfyserverless_websocket_clients", "Open websockets", value=self.sockets)
        return [self._requests.family(), self._seconds.family(), sockets]


def _route_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return _UNMATCHED if resource is None else resource.canonical


def counting(metrics: RequestMetrics) -> Middleware:
    """Count all requests; the outermost middleware, so that it sees what leaves."""

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        begin_s, status = time.perf_counter(), _CLIENT_GONE
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as exc:
            status = exc.status
            raise
        finally:
            metrics.note(request, status, time.perf_counter() - begin_s)

    return count
