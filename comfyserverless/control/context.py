"""Give a lowering its context: emit invocations, await metadata, find and publish files.

Each node of a run has one context. It counts what the node has emitted and not yet finished, because a
node is over when its lowering has returned and all its invocations are done.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from comfyserverless.control.dispatch import Call, Dispatcher, room_for
from comfyserverless.control.execution.classes import NodeClasses, OwnClasses
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.guidance.choices import Choices
from comfyserverless.control.keys import cost_key, weight_keys
from comfyserverless.control.records.saves import RunPublisher
from comfyserverless.control.saving import destination, remove_parts
from comfyserverless.control.workers.pictures import PREVIEW_PORT, Observer
from comfyserverless.core.errors import InvariantError, WorkerError
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS, HOST_FUNCTIONS
from comfyserverless.core.values import FileRef, Output, Value, outputs_in
from comfyserverless.graph.lowering import Destination, Emitted, HiddenInputs, StepProgress
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.scheduling.events import InvocationSpec

_FUNCTIONS = {**BUILTIN_FUNCTIONS, **HOST_FUNCTIONS}


@dataclass(frozen=True, slots=True)
class RunServices:
    """What the nodes of a run share; all but files and publisher are those of all runs.

    preview_method: for prompts that do not ask for one; preview_px: size of all previews. split_guidance:
    `off`, `on`, or `auto`: as choices say.
    staging_tag: this server's, in names of part files. classes: of this run, for nodes that expansions add.
    """

    dispatcher: Dispatcher
    files: FolderPaths
    publisher: RunPublisher
    embeds_metadata: bool
    preview_method: str
    preview_px: int
    split_guidance: str
    choices: Choices
    staging_tag: str
    classes: NodeClasses = field(default_factory=lambda: OwnClasses(BUILTIN))


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Whose invocations these are. preview_method: of this run; preview: as sampling steps take it.

    priority: the higher, the earlier among the invocations of the tenant. node, node_class: what they are
    counted for: of what an expansion has added the submitted node that it comes from. attempt: above 0 if its
    result is made again in this run.
    """

    run: PromptId
    tenant: TenantId
    preview_method: str
    preview: Value = None
    priority: int = 0
    node: NodeId | None = None
    node_class: str = ""
    attempt: int = 0


class NodeListener(Protocol):
    """Who is told what a node has to show while it runs; node: another node that it is about, None for
    itself."""

    def on_step(self, step: StepProgress, preview: bytes | None, node: NodeId | None = None) -> None:
        """Note that a step is done, or what a pack's node says of its progress."""

    def on_text(self, text: str, node: NodeId | None = None) -> None:
        """Note a text to be shown at a node."""


class NodeContext:
    """Implement graph.lowering.LoweringContext for one node of one run.

    listener: told when an invocation with progress is done, with its preview if it has one.
    """

    def __init__(
        self, services: RunServices, identity: RunIdentity, hidden: HiddenInputs, listener: NodeListener
    ) -> None:
        self._services = services
        self._identity = identity
        self._hidden = hidden
        self._listener = listener
        self._scope = ""
        self._count = 0
        #: what was emitted and is held for the lowering: by the call that goes on, and by those before it
        self._pinned: list[InvocationId] = []
        self._pinned_before: list[InvocationId] = []
        self._unfinished = 0
        self._failed: asyncio.Future[WorkerError] = asyncio.get_running_loop().create_future()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def hidden(self) -> HiddenInputs:
        """Return the hidden inputs of this node."""
        return self._hidden

    @property
    def preview_method(self) -> str:
        """Return how this run wants to see latents."""
        return self._identity.preview_method

    @property
    def preview(self) -> Value:
        """Return what sampling steps of this run should attach as preview."""
        return self._identity.preview

    @property
    def embeds_metadata(self) -> bool:
        """Tell whether saved files carry the prompt and workflow."""
        return self._services.embeds_metadata

    @property
    def split_guidance(self) -> str:
        """Return whether the branches of classifier-free guidance are calls apart: `off`, `on` or `auto`."""
        return self._services.split_guidance

    def choice(self, key: str) -> bool | None:
        """Return what was chosen under a key, None if nothing was."""
        return self._services.choices.find(key)

    def choose(self, key: str, choice: bool) -> bool:
        """Choose for good, unless somebody was faster; returns what holds."""
        return self._services.choices.keep(key, choice)

    def emit(self, function: str, *, progress: StepProgress | None = None, **inputs: Value) -> Emitted:
        """Submit an invocation and return its symbols. Raises InvariantError for wrong ports."""
        declared = _FUNCTIONS[function]
        names = {port.name for port in declared.inputs}
        if names != inputs.keys():
            raise InvariantError(f"{function} takes {sorted(names)}, got {sorted(inputs)}")
        callback_ports = declared.callback_ports()
        outputs = [(name, output) for name, value in inputs.items() for output in outputs_in(value)]
        # Elements come in whole lists only: who names a part of a result waits for the whole.
        is_lazy = [name in callback_ports and not output.path for name, output in outputs]
        needs = _producers(output for (_, output), lazy in zip(outputs, is_lazy, strict=True) if not lazy)
        overlapping = _producers(output for (_, output), lazy in zip(outputs, is_lazy, strict=True) if lazy)
        weights = () if function in HOST_FUNCTIONS else weight_keys(inputs.values())
        node, real = self._hidden.unique_id, self._identity.node or self._hidden.unique_id
        spec = InvocationSpec(
            id=InvocationId(f"{self._identity.run}/{node}{self._scope}/{self._label()}"),
            run=self._identity.run,
            tenant=self._identity.tenant,
            node=real,
            function=function,
            lane=declared.lane,
            cost_key=self._cost_key(function, weights),
            needs=needs,
            callback_needs=tuple(each for each in overlapping if each not in needs),
            weights=weights,
            is_step=progress is not None,
            node_class=self._identity.node_class,
            priority=self._identity.priority,
        )
        self._count += 1
        self._pinned.append(spec.id)
        self._unfinished += 1
        self._idle.clear()
        call = Call(spec, inputs, self._observe(progress), _cleanup(inputs), self._about(inputs))
        self._services.dispatcher.submit(call)
        return Emitted(spec.id)

    def _label(self) -> str:
        """Return what sets the next invocation apart from the others of its node."""
        attempt = self._identity.attempt
        return f"{attempt}.{self._count}" if attempt else str(self._count)

    def staging_stem(self) -> str:
        """Return a stem for part files that no other save uses and a repeated call of this one does."""
        tag = f"{self._identity.run}/{self._hidden.unique_id}/{self._label()}"
        digest = hashlib.blake2b(tag.encode(), digest_size=12).hexdigest()
        return f".{self._services.staging_tag}-{digest}"

    def begin_call(self) -> None:
        """Begin the next call of a node that is called several times: what the ones before hold stays."""
        self._pinned_before += self._pinned
        self._pinned = []

    def report(self, progress: StepProgress, preview: bytes | None = None, node: NodeId | None = None) -> None:
        """Show progress of this node, or of another one that runs, now."""
        self._listener.on_step(progress, preview, node)

    def show_text(self, text: str, node: NodeId | None = None) -> None:
        """Show a text at this node, or at another one."""
        self._listener.on_text(text, node)

    def child(self, scope: str) -> NodeContext:
        """Make the context of a built-in node that this node runs for itself; release it when this one is over.

        scope: told apart by it are the invocations of all children.
        """
        made = NodeContext(self._services, self._identity, self._hidden, self._listener)
        made._scope = scope
        return made

    def keep(self, outputs: Iterable[Output]) -> None:
        """Hold the results that these symbols name until `release`."""
        held = _producers(outputs)
        self._services.dispatcher.pin(held, self._hidden.unique_id)
        self._pinned.extend(held)

    @property
    def files(self) -> FolderPaths:
        """Return the files of the tenant."""
        return self._services.files

    def places(self) -> dict[str, str]:
        """Return the folders of the run's tenant by kind: input, output, temp, user."""
        files = self._services.files
        found = {kind: str(files.base(kind)) for kind in ("input", "output", "temp")}
        return {**found, "user": str(files.folders.user)}

    def _cost_key(self, function: str, weights: tuple[str, ...]) -> str:
        """Return what costs are remembered under: of packs' nodes each class by itself."""
        if function in HOST_FUNCTIONS:
            return f"{function} {self._identity.node_class}"
        return cost_key(function, weights)

    def keep_only(self, emitted: Emitted) -> None:
        """Give back the pins of all that was emitted before; what follows needs this one only."""
        others = [each for each in self._pinned if each != emitted.id]
        self._pinned = [emitted.id]
        self._services.dispatcher.unpin(others, self._hidden.unique_id)

    async def room(self, invocation: InvocationId) -> bool:
        """Make room for what a call of this node that runs has made; False if there will be none."""
        return await room_for(invocation, self._services.dispatcher)

    def peek(self, output: Output) -> Value | None:
        """Return an output's value if it is there now, else None."""
        return self._services.dispatcher.peek(output)

    async def result(self, output: Output) -> Value:
        """Wait for an output's value. Raises WorkerError if the invocation fails."""
        return await self._services.dispatcher.value(output)

    def find_file(self, folder: str, name: str) -> FileRef:
        """Find a model file. Raises PromptError naming both if missing."""
        return self._services.files.find(folder, name)

    def file_names(self, folder: str) -> list[str]:
        """List the model files of a folder key."""
        return self._services.files.names(folder)

    def embedding_folders(self) -> tuple[str, ...]:
        """Return the folders of textual inversions."""
        return self._services.files.embedding_folders()

    def find_input_file(self, name: str) -> FileRef:
        """Find an uploaded file by annotated name. Raises PromptError if missing."""
        return self._services.files.find_input(name)

    def destination(self, kind: str, prefix: str, width_px: int = 0, height_px: int = 0) -> Destination:
        """Resolve a filename prefix. Raises PromptError if it leaves the base folder."""
        base = self._services.files.base(kind)
        return destination(base, kind, prefix, (width_px, height_px), time.localtime())

    def expected_number(self, destination: Destination) -> int:
        """Return the number that the next file of a destination will have if nobody else is faster."""
        return self._services.publisher.expected_number(destination)

    async def publish(
        self, destination: Destination, staged: Sequence[str], extension: str
    ) -> list[dict[str, str]]:
        """Give written files their final names; after a crash of the server, those that they had before."""
        node = self._hidden.unique_id
        return await self._services.publisher.publish(node, destination, staged, extension)

    @property
    def is_idle(self) -> bool:
        """Tell whether everything emitted is done, and well."""
        return self._unfinished == 0 and not self._failed.done()

    async def finished(self) -> None:
        """Wait until everything emitted is done. Raises the first WorkerError."""
        await self._idle.wait()
        if self._failed.done():
            raise self._failed.result()

    async def failed(self) -> None:
        """Wait for the first failure of something emitted and raise it; returns only by cancellation."""
        await asyncio.wait({self._failed})
        raise self._failed.result()

    def release(self) -> None:
        """Give back the pins that emitting took; the node result's own pins are taken before."""
        held, self._pinned, self._pinned_before = self._pinned_before + self._pinned, [], []
        self._services.dispatcher.unpin(held, self._hidden.unique_id)

    def _about(self, inputs: Mapping[str, Value]) -> HiddenInputs | None:
        """Return what a call of a pack's node will ask for, however often and late it runs; else None."""
        match inputs:
            case {"about": {"parts": parts}} if parts:
                return self._hidden
        return None

    def _observe(self, progress: StepProgress | None) -> Observer:
        def observe(outputs: Mapping[str, Value], error: WorkerError | None) -> None:
            self._unfinished -= 1
            if error is not None and not self._failed.done():
                self._failed.set_result(error)
            if error is None and progress is not None:
                self._listener.on_step(progress, outputs.get(PREVIEW_PORT))
            if self._unfinished == 0 or self._failed.done():
                self._idle.set()

        return observe


def _cleanup(inputs: Mapping[str, Value]) -> Callable[[], None] | None:
    """Return what removes the files that a saving function has written and nobody published."""
    match inputs:
        case {"directory": str(directory), "stem": str(stem)}:
            return lambda: remove_parts(directory, stem)
    return None


def _producers(outputs: Iterable[Output]) -> tuple[InvocationId, ...]:
    """List the invocations of these outputs, in first-mention order."""
    return tuple(dict.fromkeys(output.invocation for output in outputs))
