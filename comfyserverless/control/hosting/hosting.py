"""Join what the control process has to do with node packs: the host, its requests, classes, instances."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.builtin_info import BuiltinInfo
from comfyserverless.control.hosting.classes import HostedClasses, foreign_nodes
from comfyserverless.control.hosting.host import LOADED_WITHIN_S, HostDown, PackHost
from comfyserverless.control.hosting.requests import HostRequests
from comfyserverless.control.hosting.twins import Twins, names_foreign
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.ids import TenantId
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import LoweringContext
from comfyserverless.graph.object_info import describe
from comfyserverless.graph.plan import Plan, Validation
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.hosted.registry import HOSTED
from comfyserverless.nodes.registry import BUILTIN

log = logging.getLogger(__name__)

_INFO_WITHIN_S = 30.0
_PATIENCE = 4

_Instance = tuple[str, str, str]


class Hosting:
    """Own the node host of one server, if it has packs. scratch: the server's private folder."""

    def __init__(self, config: EngineConfig, files: FolderPaths, scratch: Path) -> None:
        self.host = PackHost(config, files, scratch)
        self.requests = HostRequests(self.host, find_internal)
        self.requests.answer("object_info", BuiltinInfo(files).answer)
        #: nodes whose instances may be in the host: tenant, node id, class.
        self._instances: set[_Instance] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def wanted_host(self) -> PackHost | None:
        """Return the host if there is to be one."""
        return self.host if self.host.is_wanted else None

    async def start(self) -> None:
        """Begin to listen."""
        await self.host.start()

    async def stop(self) -> None:
        """Answer nobody any more."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.host.stop()

    def is_needed(self, prompt: Any) -> bool:
        """Tell whether a prompt has something of packs in it: a class, or a sampler that it names."""
        if not self.host.is_wanted or not isinstance(prompt, dict):
            return False
        return bool(foreign_nodes(prompt)) or names_foreign(prompt)

    async def validated(self, prompt: Any, files: FolderPaths, targets: Sequence[str] | None) -> Validation:
        """Validate a prompt; one with built-in nodes only waits for nobody. Raises HostDown."""
        if not self.is_needed(prompt):
            return validate(prompt, BUILTIN, files, targets)
        return await self.classes(files, prompt).validated(prompt, files, targets)

    async def validated_at_last(
        self, prompt: Any, files: FolderPaths, targets: Sequence[str] | None
    ) -> Validation:
        """Validate a prompt that was accepted before; packs may take long to be there. Raises HostDown."""
        for _ in range(_PATIENCE):
            with contextlib.suppress(HostDown):
                return await self.validated(prompt, files, targets)
        return await self.validated(prompt, files, targets)

    def classes(self, files: FolderPaths, prompt: Any) -> HostedClasses:
        """Return the classes that nodes of one prompt may have."""
        return HostedClasses(self.host, self, {"places": _places(files)}, prompt)

    async def object_info(
        self, files: FolderPaths, class_type: str | None = None, within_s: float = LOADED_WITHIN_S
    ) -> Mapping[str, Any]:
        """Return ComfyUI's entries of pack classes (None: of all); waits while packs are being loaded.

        Of built-in classes there are those whose choices packs have added to. Entries are those of the moment,
        for whose files these are; if the host is not there, those that it had.
        """
        if not self.host.is_wanted:
            return {}
        if class_type is not None and BUILTIN.get(class_type) is not None:
            return {name: info for name, info in self._extended(files).items() if name == class_type}
        try:
            if await self.host.loaded_soon(within_s) is None:
                raise HostDown(self.host.health.problem() or "They are being loaded")
            payload = {"class_type": class_type, "about": {"places": _places(files)}}
            found: Mapping[str, Any] = await self.host.ask("object_info", payload, _INFO_WITHIN_S)
        except (HostDown, ValueError) as exc:
            log.warning("the nodes of packs are shown as they were last, if ever: %s", exc)
            catalog = self.host.catalog
            known = {} if catalog is None else {name: info.info for name, info in catalog.classes.items()}
            found = known if class_type is None else {n: i for n, i in known.items() if n == class_type}
        return {**found, **self._extended(files)} if class_type is None else found

    def _extended(self, files: FolderPaths) -> dict[str, Any]:
        """Return the entries of built-in classes whose choices packs have added to."""
        twins = Twins.of(self, self.host.catalog)
        return {each.name: describe(each, files) for each in twins.described()}

    # -- instances of nodes -----------------------------------------------------------------------

    def opened(self, invocation: Any, context: LoweringContext) -> contextlib.AbstractContextManager[None]:
        """Let an invocation ask, for the node of a context, within the block."""
        hidden = context.hidden
        node = hidden.lineage.nodes.get(hidden.unique_id) or hidden.prompt.get(hidden.unique_id) or {}
        self._instances.add((hidden.tenant, hidden.unique_id, str(node.get("class_type", ""))))
        return self.requests.opened(invocation, context)

    async def answer_of(self, answers: Awaitable[Value]) -> Value:
        """Wait for what a node gives. Raises HostDown if nobody is to wait any more for the node host."""
        return await self.host.answer_of(answers)

    def places(self, context: LoweringContext) -> dict[str, str]:
        """Return the folders of the tenant of a context."""
        return self.requests.places(context)

    def retain(self, tenant: TenantId, plans: Iterable[Plan]) -> None:
        """Let the instances go of a tenant's nodes that are in none of its graphs any more.

        Those of nodes that an expansion adds stay with the node that expands.
        """
        kept = {(str(node.id), node.declaration.name) for plan in plans for node in plan.nodes.values()}
        roots = {node for node, _ in kept}
        gone = [
            each
            for each in self._instances
            if each[0] == tenant and each[1:] not in kept and not _descends(each[1], roots)
        ]
        if gone:
            self._instances.difference_update(gone)
            task = asyncio.get_running_loop().create_task(self._forget(gone))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forget(self, nodes: list[_Instance]) -> None:
        with contextlib.suppress(HostDown, ValueError):
            await self.host.ask("forget", {"nodes": [list(each) for each in nodes]})


def find_internal(name: str) -> NodeDeclaration | None:
    """Return a declaration that only the node host may name (`nodes.hosted`), None if there is none."""
    return HOSTED.get(name)


def _places(files: FolderPaths) -> dict[str, str]:
    found = {kind: str(files.base(kind)) for kind in ("input", "output", "temp")}
    return {**found, "user": str(files.folders.user)}


def _descends(node: str, roots: set[str]) -> bool:
    """Tell whether an expansion of one of some nodes has added a node: their ids begin so."""
    parts = node.split(".")
    return any(".".join(parts[:count]) in roots for count in range(1, len(parts)))
