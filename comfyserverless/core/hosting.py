"""Name what the control process and the node host say to each other beside invocations; all are value trees.

Questions (control -> host), none of which waits for a node that runs:

- `describe` {nodes: [{id, class_type, inputs: names -> literal, None for a link}]} -> {id: description, None
  for an unknown class, {error} if the class raises}: calls INPUT_TYPES afresh, and expands inputs that depend
  on what was submitted.
- `check` {nodes: [{id, class_type, inputs: names -> literal, None for a link; input_types: names -> type of the
  source}]}
  -> {id: [[input name or "", problem text], ...]}: VALIDATE_INPUTS, only for nodes whose description has a
  validator. One that raises is told as [["", its message, its type]].
- `changed` {nodes: [{id, class_type, inputs}], about} -> {id: token}: IS_CHANGED; a token is a literal tree,
  NaN: always.
- `prompt` {body: JSON text of a POST /prompt} -> {body: JSON text}: on-prompt handlers.
- `object_info` {class_type or None} -> {class: ComfyUI's entry}: of all pack classes.
- `forget` {nodes: [[tenant, node id, class_type]]} -> None: their instances are not needed any more.

Requests (host -> control), beside those of `host.bridge`, for a call:

- `prompt` {graph: true, workflow: true, nodes: how many are known} of these what is wanted -> {graph, workflow:
  JSON texts of the submitted graph and of extra_pnginfo; nodes: those that expansions have added since, as
  [id, node, parent, display, real]}.
- `room` {} -> whether to try again: its results found no room in the arena. There may be some now.

Notices (host -> control):

- `loading` {pack: name, or "" when all are loaded}, before each pack is imported: whose import it is if the
  host dies. - `catalog`, once after loading: `Catalog` as a tree. - `leaving`
  {pack, where}: code of a pack ends the process, with os._exit, at this line.
- `progress` {value, maximum, node_id, preview bytes or None}. - `text` {text, node_id}.
- `send` {event, data: JSON text, or bytes of a binary event, client_id, tenant, "" outside of anything that is
  done for one}.
- `read` {request: id}: the answer to a request was copied, and need not be held.
- `metadata` {extra_pnginfo: JSON text}: a node has changed what is saved in files.
"""

from __future__ import annotations

from typing import Any

import msgspec

COMPATIBLE_VERSION = "0.8.0"
"""The ComfyUI release whose behaviour this server was compared with; packs ask for it, too."""

SERVED_HEADER = "X-Comfyserverless-Served"
"""Control -> node host, in each request that is passed on to a route of a pack: {tenant, places {kind: folder}}
as JSON, of who has sent it."""


class FolderInfo(msgspec.Struct, frozen=True):
    """A key of model folders: absolute search paths in order, and extensions (none: every file)."""

    paths: tuple[str, ...]
    extensions: tuple[str, ...]


class HostSettings(msgspec.Struct, frozen=True):
    """Control -> node host, at its start: what packs can ask about the server.

    models: the folder that packs put models into; folders: of models by key, as the control process sees
    them, extra paths included; flags: ComfyUI's arguments by name, those that are not at their default;
    argv: the server's own; address, port: of its page; http: where to make the unix socket that serves the
    routes of packs, empty for none.
    """

    base: str
    models: str
    folders: dict[str, FolderInfo] = {}
    flags: dict[str, Any] = {}
    argv: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    port: int = 8188
    http: str = ""


class HostPlan(msgspec.Struct, frozen=True):
    """Control -> node host, in the `SpawnWorker` line that starts it; all paths are absolute.

    custom_nodes: folders of packs, in order. whitelist: names of packs that may be loaded, None for all.
    given_up: name of a pack -> why it is not loaded again. places: input, output, temp, user -> folder of the
    server itself. output: unix socket that takes what the process prints. taken: class names that packs cannot
    have.
    """

    settings: HostSettings
    custom_nodes: tuple[str, ...] = ()
    whitelist: tuple[str, ...] | None = None
    given_up: dict[str, str] = {}
    places: dict[str, str] = {}
    output: str = ""
    taken: tuple[str, ...] = ()


class PackReport(msgspec.Struct, frozen=True):
    """What became of one pack at loading. error: one line, empty if it was imported.

    missing: pip requirements that are not installed; web_folder: absolute, empty if it has none; web_name: of
    its files below /extensions.
    """

    name: str
    path: str
    seconds: float
    error: str = ""
    classes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    web_name: str = ""
    web_folder: str = ""


class RouteInfo(msgspec.Struct, frozen=True):
    """A route that a pack added: method (`*` for any), aiohttp path with {names}; twinned: it is also below
    /api."""

    method: str
    path: str
    twinned: bool
    pack: str = ""


class Catalog(msgspec.Struct, frozen=True):
    """What the packs bring. classes: descriptions (see `NodeInfo`) by class name.

    http: unix socket on which the host serves the routes; empty if there are none. web_folders: /extensions
    name -> absolute folder, those that packs added by hand too. replacements: of renamed classes, shaped as
    `/node_replacements`. folders: of models by key, those that packs have added or changed. samplers,
    schedulers: names that packs have added to those that nodes list.
    """

    packs: tuple[PackReport, ...]
    classes: dict[str, NodeInfo]
    routes: tuple[RouteInfo, ...] = ()
    http: str = ""
    web_folders: dict[str, str] = {}
    has_prompt_handlers: bool = False
    replacements: dict[str, list[dict[str, Any]]] = {}
    folders: dict[str, FolderInfo] = {}
    samplers: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()


class InputInfo(msgspec.Struct, frozen=True):
    """One input of a pack's class. type: a type name, or the choices of a combo; options: JSON values.

    matches_any: the type object says that it differs from no type (a wildcard), in whatever words.
    """

    name: str
    type: str | list[Any]
    options: dict[str, Any] = {}
    section: str = "required"
    matches_any: bool = False


class OutputInfo(msgspec.Struct, frozen=True):
    """One output slot of a pack's class. type: a type name, or the choices of a combo."""

    type: str | list[Any]
    name: str = ""
    tooltip: str = ""
    is_list: bool = False
    matches_any: bool = False


class ValidatorInfo(msgspec.Struct, frozen=True):
    """What a class's VALIDATE_INPUTS asks for by name; takes_all: it has **kwargs."""

    names: tuple[str, ...] = ()
    takes_all: bool = False
    takes_types: bool = False


class NodeInfo(msgspec.Struct, frozen=True):
    """A pack's class, V1 or V3, as the control process needs it; info: ComfyUI's object_info entry.

    hidden: argument -> TAG.
    """

    name: str
    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    hidden: dict[str, str]
    info: dict[str, Any]
    output_node: bool = False
    input_is_list: bool = False
    is_async: bool = False
    not_idempotent: bool = False
    has_change_token: bool = False
    has_lazy_check: bool = False
    validator: ValidatorInfo | None = None
