"""Own the registry of a server, what fills it, and the text that Prometheus reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from comfyserverless import __version__
from comfyserverless.control.metering.measured import Meter
from comfyserverless.control.metrics.labels import TenantLabels
from comfyserverless.control.metrics.prompts import PromptMetrics
from comfyserverless.control.metrics.state import Sight, StateCollector
from comfyserverless.control.metrics.stays import StayMetrics
from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import PromptId, TenantId


class Metrics:
    """Measure one server.

    names: lists the tenants; look: sees the present state; find: returns the record of a prompt that runs.
    registry: the server's own, to which others may add what they measure.
    """

    def __init__(
        self,
        names: Callable[[], Collection[TenantId]],
        meter: Meter,
        find: Callable[[TenantId, PromptId], RunRecord | None],
        look: Callable[[], Sight],
    ) -> None:
        # A series more for each, which says when its labels came up first.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self._look = look
        labels = TenantLabels(names)
        prompts = PromptMetrics(self.registry, labels, find)
        self.on_notice = prompts.on_notice
        stays = StayMetrics(labels)
        meter.listen(stays.on_measured)
        self.registry.register(stays)
        self._state = StateCollector(labels)
        self.registry.register(self._state)
        ProcessCollector(registry=self.registry)
        info = Info("comfyserverless_build", "Version of the server", registry=self.registry)
        info.info({"version": __version__})

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its content type. accept: the formats that the reader takes, as in HTTP.

        The state is looked at here, on the event loop; writing it down is another thread's work.
        """
        self._state.look(self._look())
        encode, content_type = choose_encoder(accept)
        return await asyncio.to_thread(encode, self.registry), content_type
