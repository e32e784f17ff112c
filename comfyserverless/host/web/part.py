"""Join the HTTP side of packs to the node host."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import msgspec

from comfyserverless.core.hosting import Catalog
from comfyserverless.host.parts import Parts
from comfyserverless.host.web.prompt_server import PromptServer
from comfyserverless.host.web.serving import PackServer
from comfyserverless.host.web.tenants import serve_tenant

log = logging.getLogger(__name__)


def make_server() -> PromptServer:
    """Make the one PromptServer of this process; its loop does not run yet."""
    server = PromptServer.instance = PromptServer((serve_tenant,))
    return server


def attach(parts: Parts) -> None:
    """Have packs find a PromptServer, and serve what they add to it."""
    part = WebPart(parts.plan.settings.http)
    parts.loaded.append(part.on_loaded)
    parts.answers["prompt"] = part.on_prompt
    parts.ending.append(part.close)


class WebPart:
    """What of the host's life concerns HTTP. http: path of the socket."""

    def __init__(self, http: str) -> None:
        self._http = http
        self._server = make_server()
        self._site = PackServer(self._server)

    def on_loaded(self, catalog: Catalog) -> Catalog:
        """Serve what the packs have added; returns the catalog with it."""
        folders = {str(name): os.path.abspath(folder) for name, folder in catalog.web_folders.items()}
        has_handlers = bool(self._server.on_prompt_handlers)
        try:
            routes = self._site.open(self._http)
        except BaseException:  # custom-node call: start-up functions of packs run here
            log.exception("the routes of packs cannot be served")
            routes = ()
        return msgspec.structs.replace(
            catalog,
            routes=routes,
            http=self._http if routes else "",
            has_prompt_handlers=has_handlers,
            web_folders=folders,
        )

    def on_prompt(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer the question `prompt`: the body of a submission, after all handlers."""
        return {"body": json.dumps(self._server.trigger_on_prompt(json.loads(question["body"])))}

    def close(self) -> None:
        """End serving."""
        self._site.close()
