"""Be `server.PromptServer.instance`: where packs add routes and handlers at their import, and send messages
from.

Nothing of it is served before the packs are loaded (see `serving`), and nothing can be added afterwards.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyserverless.host.bridge import bridge
from comfyserverless.host.missing import unsupported
from comfyserverless.host.settings import settings
from comfyserverless.host.web.events import binary_payload
from comfyserverless.host.web.queue import PromptQueue

log = logging.getLogger(__name__)

PromptHandler = Callable[[dict[str, Any]], dict[str, Any]]
_MIB = 1 << 20


class PromptServer:
    """What packs know of the server. outermost: middlewares around all that packs bring themselves."""

    instance: ClassVar[PromptServer]

    def __init__(self, outermost: tuple[Middleware, ...] = ()) -> None:
        limit_bytes = int(settings().flags.get("max_upload_size", 100) * _MIB)
        self.app = web.Application(client_max_size=limit_bytes, middlewares=outermost)
        self.routes = web.RouteTableDef()
        self.prompt_queue = PromptQueue()
        self.on_prompt_handlers: list[PromptHandler] = []
        self.supports = ["custom_nodes_from_web"]
        self.address = settings().address
        self.port = settings().port
        self.number = 0
        #: websockets end in the control process: packs that look for one find none.
        self.sockets: dict[str, Any] = {}
        self.sockets_metadata: dict[str, Any] = {}

    node_replace_manager = None
    user_manager = None
    add_routes = unsupported("server.PromptServer.add_routes")
    start = unsupported("server.PromptServer.start")
    setup = unsupported("server.PromptServer.setup")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"comfyserverless has no server.PromptServer.instance.{name}", name=name)

    @cached_property
    def web_root(self) -> str:
        """The folder of the page's files."""
        return str(importlib.resources.files("comfyui_frontend_package") / "static")

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that handlers run in; made when it is first asked for."""
        return asyncio.new_event_loop()

    @property
    def client_id(self) -> str | None:
        """Return who submitted the prompt that runs here, None outside of one."""
        return bridge().call.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        """Do nothing: a prompt belongs to who submitted it."""

    @property
    def last_node_id(self) -> str | None:
        """Return the node that runs here."""
        return bridge().call.node_id or None

    @last_node_id.setter
    def last_node_id(self, value: str | None) -> None:
        """Do nothing: it follows what runs."""

    @property
    def last_prompt_id(self) -> str | None:
        """Return the prompt that runs here."""
        return bridge().call.prompt_id or None

    @last_prompt_id.setter
    def last_prompt_id(self, value: str | None) -> None:
        """Do nothing: it follows what runs."""

    def send_sync(self, event: str | int, data: Any, sid: str | None = None) -> None:
        """Send a message to a client; without `sid` to all that may see it. From any thread.

        event: a type of messages, or a number of binary ones. Raises TypeError for what has no binary form.
        """
        if isinstance(event, int):
            event, data = binary_payload(event, data)
        bridge().send(event, data, sid)

    async def send(self, event: str | int, data: Any, sid: str | None = None) -> None:
        """Send a message as `send_sync` does."""
        self.send_sync(event, data, sid)

    async def send_json(self, event: str, data: Any, sid: str | None = None) -> None:
        """Send a message as `send_sync` does."""
        self.send_sync(event, data, sid)

    async def send_bytes(self, event: int, data: Any, sid: str | None = None) -> None:
        """Send a binary message as `send_sync` does."""
        self.send_sync(event, data, sid)

    def send_progress_text(self, text: str | bytes, node_id: str, sid: str | None = None) -> None:
        """Show a text at a node while it runs."""
        bridge().text(text.decode() if isinstance(text, bytes) else text, node_id)

    def queue_updated(self) -> None:
        """Do nothing: the server tells of its queue itself."""

    def get_queue_info(self) -> dict[str, Any]:
        """Return how many prompts run or wait, as `GET /prompt` shows it."""
        return {"exec_info": {"queue_remaining": self.prompt_queue.get_tasks_remaining()}}

    def add_on_prompt_handler(self, handler: PromptHandler) -> None:
        """Have a function see, and change, the body of every prompt that is submitted."""
        self.on_prompt_handlers.append(handler)

    def trigger_on_prompt(self, json_data: dict[str, Any]) -> dict[str, Any]:
        """Give a body to all handlers, in order; one that fails, or returns no object, is passed over."""
        for handler in self.on_prompt_handlers:
            before = json.dumps(json_data)
            try:
                given = handler(json_data)
                if not isinstance(given, dict):
                    raise TypeError(f"it returned a {type(given).__name__}, not the body")
                json.dumps(given)
                json_data = given
            except BaseException:  # custom-node call: the prompt goes on as it was before
                log.exception("an on-prompt handler of %s failed", getattr(handler, "__module__", "a pack"))
                json_data = json.loads(before)
        return json_data
