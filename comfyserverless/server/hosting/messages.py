"""Send what packs send to the sockets of those who may see it.

A message of a node that runs, or of a handler that answers, reaches its tenant alone. What belongs to no tenant
(threads of packs) reaches everybody where there are no accounts; else, without a client it reaches operators,
and with one only if a single tenant has a socket of that id.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from comfyserverless.server.sockets import SocketHub
from comfyserverless.server.wire import Outgoing, text_frame

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackMessage(Outgoing):
    """A message of a pack: its type and data are the pack's own, whatever they are called."""

    binary: bytes | None = None

    @property
    def run(self) -> PromptId | None:
        """Return None: such a message is not kept for a client that is away."""
        return None

    def frame(self) -> str | bytes:
        """Encode for the socket."""
        return text_frame(self.type, self.data) if self.binary is None else self.binary


class PackMessages:
    """Route messages. operators: tell who sees what belongs to nobody; None: there are no accounts."""

    def __init__(self, hub: SocketHub, operators: Callable[[], Iterable[TenantId]] | None) -> None:
        self._hub = hub
        self._operators = operators

    def on_send(self, notice: dict[str, Any], _invocation: object) -> None:
        """Send a `send` notice of the node host; one that is malformed is told in the log."""
        try:
            self._send(notice)
        except (KeyError, TypeError, ValueError, struct.error) as exc:
            _log.warning("a message of a node pack cannot be sent: %s", exc)

    def _send(self, notice: dict[str, Any]) -> None:
        event, data, client_id = notice["event"], notice["data"], notice["client_id"]
        for tenant in self._tenants(str(notice.get("tenant") or ""), client_id):
            if isinstance(event, int):
                frame = struct.pack(">I", event) + data
                self._hub.send(PackMessage(tenant, client_id, "", {}, binary=frame))
            else:
                self._hub.send(PackMessage(tenant, client_id, event, json.loads(data)))

    def _tenants(self, tenant: str, client_id: str | None) -> Iterable[TenantId]:
        if self._operators is None:
            return (DEFAULT_TENANT,)
        if tenant:
            return (TenantId(tenant),)
        if client_id is None:
            return tuple(self._operators())
        owners = self._hub.owners(client_id)
        return owners if len(owners) == 1 else ()
