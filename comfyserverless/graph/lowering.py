"""Define what a node's lowering may ask for, and what it returns.

Lowerings are `async def` but only await the context. Values on edges may hold `Output` symbols of
invocations that have not run yet; a lowering awaits `result` only where it needs the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.core.values import FileRef, Output, Value


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Report `value` of `maximum` on the node when the invocation ends (KSampler steps)."""

    value: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Emitted:
    """A submitted invocation; `out` stands for its result."""

    id: InvocationId

    def out(self, port: str) -> Output:
        """Stand for the value of an output port."""
        return Output(self.id, port)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where files of one save go: `directory` exists; final names are `{name}_{counter:05}_.{extension}`.

    kind: `output` or `temp`; subfolder: relative, with `/`, as ComfyUI reports it.
    """

    directory: str
    subfolder: str
    name: str
    kind: str


@dataclass(slots=True)
class Lineage:
    """The nodes that expansions have added to a prompt while it runs; it grows, and belongs to the run.

    nodes: in API form by id. parents: whose expansion added a node; displays: where the page shows it; reals:
    the submitted node that it descends from. Submitted nodes are in none of them.
    """

    nodes: dict[NodeId, Mapping[str, Any]] = field(default_factory=dict)
    parents: dict[NodeId, NodeId] = field(default_factory=dict)
    displays: dict[NodeId, NodeId] = field(default_factory=dict)
    reals: dict[NodeId, NodeId] = field(default_factory=dict)

    def parent(self, node: NodeId) -> NodeId | None:
        """Return the node whose expansion added a node, None for a submitted one."""
        return self.parents.get(node)

    def display(self, node: NodeId) -> NodeId:
        """Return the node at which the page shows a node: itself if it was submitted."""
        return self.displays.get(node, node)

    def real(self, node: NodeId) -> NodeId:
        """Return the submitted node that a node is or descends from."""
        return self.reals.get(node, node)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HiddenInputs:
    """What ComfyUI's hidden inputs give a node: the validated prompt, the workflow metadata, its own id.

    lineage: of nodes that were added while the prompt runs. extra_data, prompt_id, client_id, tenant: of the
    submission. run: no other run of this server has it.
    """

    prompt: Mapping[str, Any]
    extra_pnginfo: Mapping[str, Any] | None
    unique_id: NodeId
    lineage: Lineage = field(default_factory=Lineage)
    extra_data: Mapping[str, Any] = field(default_factory=dict)
    prompt_id: str = ""
    client_id: str | None = None
    tenant: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """Several values on one edge: a consumer runs once for each, unless it takes lists (INPUT_IS_LIST).

    One value is written without this; none or many need it.
    """

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Stand where a value would be: whoever gets it does not run, and passes it on (ExecutionBlocker).

    message: shown once as an error at the first consumer that is held up; None for silence.
    """

    message: str | None = None


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What one call of a node gives: one value per declared output, and a ui dict or None.

    outputs: of a slot that is declared as a list, `Items`; `Blocked` may stand for any value; with `expand` a
    `plan.Link` into it. Fewer than declared are fine as long as nobody needs the missing ones. expand: nodes in
    API form that are to run first, their ids unlike any other of the prompt; constants among their inputs may
    be any values. What names tensors or objects of the node host has to name them as `Output`s (also inside
    `expand`), or they are freed with the invocation that made them.
    """

    outputs: Sequence[Value] = ()
    ui: Mapping[str, list[Any]] | None = field(default=None)
    expand: Mapping[str, Any] | None = field(default=None)


class LoweringContext(Protocol):
    """The only way out of a lowering. Implemented by the control room."""

    @property
    def hidden(self) -> HiddenInputs:
        """Return the hidden inputs of this node."""

    @property
    def preview_method(self) -> str:
        """Return how this run wants to see latents: `none`, `auto`, `latent2rgb` or `taesd`."""

    @property
    def preview(self) -> Value:
        """Return what sampling steps of this run should attach as preview, as their port takes it."""

    @property
    def embeds_metadata(self) -> bool:
        """Tell whether saved files carry the prompt and workflow (`--disable-metadata` turns it off)."""

    @property
    def split_guidance(self) -> str:
        """Return whether the branches of classifier-free guidance are calls apart: `off`, `on` or `auto`."""

    def choice(self, key: str) -> bool | None:
        """Return what was chosen under a key in this or an earlier run of the server, None if nothing was."""

    def choose(self, key: str, choice: bool) -> bool:
        """Choose for good, unless somebody was faster; returns what holds."""

    def emit(self, function: str, *, progress: StepProgress | None = None, **inputs: Value) -> Emitted:
        """Submit an invocation at once and return its symbols; every declared input port must be given."""

    def report(self, progress: StepProgress, preview: bytes | None = None, node: NodeId | None = None) -> None:
        """Show progress of this node (or of another one that runs) now; preview: an encoded picture."""

    def show_text(self, text: str, node: NodeId | None = None) -> None:
        """Show a text at this node (or at another one) while it runs."""

    def keep_only(self, emitted: Emitted) -> None:
        """Say that of all that was emitted so far, later calls will use the results of this one only.

        A lowering that emits as it goes holds everything that it has emitted, until it returns.
        """

    async def result(self, output: Output) -> Value:
        """Wait for an output's value (tensors stay references). Raises WorkerError if the invocation fails."""

    def find_file(self, folder: str, name: str) -> FileRef:
        """Find a model file by folder key and relative name. Raises PromptError naming both if missing."""

    def file_names(self, folder: str) -> list[str]:
        """List the model files of a folder key, sorted, relative."""

    def embedding_folders(self) -> tuple[str, ...]:
        """Return the folders in which text encoders look for textual inversions."""

    def find_input_file(self, name: str) -> FileRef:
        """Find an uploaded file by annotated name (`a.png [output]`). Raises PromptError if missing."""

    def destination(self, kind: str, prefix: str, width_px: int = 0, height_px: int = 0) -> Destination:
        """Resolve a filename prefix with its %tokens% (kind `output` or `temp`); creates the folder.

        Raises PromptError if the prefix leaves the base folder.
        """

    def expected_number(self, destination: Destination) -> int:
        """Return the number that the next file of a destination will have if nobody else is faster."""

    def staging_stem(self) -> str:
        """Return a stem for the part files of one save that no other save uses; it starts with a dot."""

    async def publish(
        self, destination: Destination, staged: Sequence[str], extension: str
    ) -> list[dict[str, str]]:
        """Give written files their final numbered names, atomically and never over another file.

        Returns ComfyUI's items {filename, subfolder, type} in the order of `staged`.
        """
