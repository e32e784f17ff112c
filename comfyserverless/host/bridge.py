"""Connect the modules that packs import with the process they run in.

`folder_paths`, `nodes`, `comfy.*`, `server` ... are thin modules over the rooms of `host`; whatever they need
of the running server goes through the one `Bridge` here. The node host installs a live one at its start; other
processes (a worker that runs a pack's callable, a test) have `Offline`, which names what cannot be done there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are for whoever runs now; all absolute. With accounts each tenant has its own."""

    base: Path
    input: Path
    output: Path
    temp: Path
    user: Path


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What is being executed. list_index: position among the mapped calls of the node.

    invocation: of the pack.call that runs it; "" outside of one.
    """

    invocation: str = ""
    prompt_id: str = ""
    node_id: str = ""
    class_type: str = ""
    list_index: int = 0
    client_id: str | None = None
    tenant: str = "default"
    preview_method: str = "none"


class InterruptProcessingException(Exception):
    """The user has stopped the prompt. Packs know it as
    `comfy.model_management.InterruptProcessingException`."""


class Bridge(Protocol):
    """What pack-facing modules may ask of the server. Methods may be called from any thread."""

    @property
    def call(self) -> CallInfo:
        """Return what this thread or task executes (a context variable), an empty one outside of a call."""

    @property
    def places(self) -> Places:
        """Return the folders of the tenant that is served now, of the server itself outside of a call."""

    def ask(self, kind: str, payload: Any) -> Any:
        """Ask the control process and wait: payload and answer are value trees (see `core.values`).

        Tensors go and come as tensors, handles as handles. kind `run_node`: {class_type, inputs: {name: value}}
        -> list of output values, computed by the built-in node on the workers, charged to the tenant of the
        call; kind `object_info`: {class_type} -> its entry, {} if there is none, None: of all built-in classes
        by name; kind `queue`: {tenant} -> {running, pending} as `GET /queue` lists them; kind `history`:
        {tenant, prompt_id or None, max_items or None} -> entries by prompt id; kind `interrupt`: {tenant} ->
        None. tenant: for whom, where no call says it. Raises InterruptProcessingException if the prompt was
        stopped meanwhile, RuntimeError with the message of what failed.
        """

    def progress(
        self, value: float, maximum: float, node_id: str | None = None, preview: bytes | None = None
    ) -> None:
        """Report progress of the current (or named) node; preview: an encoded picture with its format.

        Raises InterruptProcessingException if the prompt was stopped.
        """

    def text(self, text: str, node_id: str | None = None) -> None:
        """Show a text at a node while it runs."""

    def send(self, event: str | int, data: Any, client_id: str | None) -> None:
        """Send a message to a client's websocket, to all if client_id is None. event int: a binary event."""

    def throw_if_interrupted(self) -> None:
        """Raise InterruptProcessingException if the prompt of this call was stopped."""

    def interrupt(self, value: bool = True) -> None:
        """Stop the current prompt (value true), or forget that this was wanted."""


class Offline:
    """The bridge of a process that is not the node host: no server to ask, nothing to show."""

    def __init__(self, places: Places | None = None) -> None:
        here = Path.cwd()
        self._places = places or Places(here, here / "input", here / "output", here / "temp", here / "user")
        self._call = CallInfo()

    @property
    def call(self) -> CallInfo:
        """Return an empty call."""
        return self._call

    @property
    def places(self) -> Places:
        """Return the folders below the working directory, or those given."""
        return self._places

    def ask(self, kind: str, payload: Any) -> Any:
        """Raise RuntimeError: nobody is there to ask."""
        raise RuntimeError(f"{kind}: this can be asked in the node host only, not where model functions run")

    def progress(
        self, value: float, maximum: float, node_id: str | None = None, preview: bytes | None = None
    ) -> None:
        """Do nothing."""

    def text(self, text: str, node_id: str | None = None) -> None:
        """Do nothing."""

    def send(self, event: str | int, data: Any, client_id: str | None) -> None:
        """Do nothing."""

    def throw_if_interrupted(self) -> None:
        """Do nothing: the worker looks for itself whether its call was cancelled."""

    def interrupt(self, value: bool = True) -> None:
        """Do nothing."""


_bridge: Bridge = Offline()


def bridge() -> Bridge:
    """Return the bridge of this process."""
    return _bridge


def install(live: Bridge) -> Bridge:
    """Make a bridge the one of this process; returns the one before."""
    global _bridge
    before, _bridge = _bridge, live
    return before
