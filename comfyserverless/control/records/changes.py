"""Say what changes in the records; a backend applies changes in the order in which they were made.

Every change is safe to apply to a prompt that is gone: then it does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfyserverless.control.metering.amounts import Amounts, Cell, CellKey, DayKey
from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import NodeId, PromptId, TenantId


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file on its way from its staging path to its final one.

    inode and length_bytes tell it from another file of that name; filename, subfolder and kind are what
    clients are shown.
    """

    staged: str
    path: str
    inode: int
    length_bytes: int
    filename: str
    subfolder: str
    kind: str

    def item(self) -> dict[str, str]:
        """Return the file as ComfyUI shows it."""
        return {"filename": self.filename, "subfolder": self.subfolder, "type": self.kind}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prompt waits; an ended one of its id is forgotten. counter: numbers given to the tenant so far."""

    record: RunRecord
    counter: int


@dataclass(frozen=True, slots=True)
class Started:
    """A prompt left the queue."""

    tenant: TenantId
    prompt_id: PromptId
    at_ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Its user has interrupted a running prompt: it must not run again, whatever happens next."""

    tenant: TenantId
    prompt_id: PromptId


@dataclass(frozen=True, slots=True)
class Parked:
    """A running prompt waits again, through no fault of its own: the server ends in good order."""

    tenant: TenantId
    prompt_id: PromptId


@dataclass(frozen=True, slots=True)
class FilesNamed:
    """One save of a node has these final names; nothing has them yet.

    save: counts the saves of the node. The staged files are on disk before the names are.
    """

    tenant: TenantId
    prompt_id: PromptId
    node: NodeId
    save: int
    files: tuple[NamedFile, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A prompt is over: its record, which nobody changes any more, becomes history.

    folders: where files of it appeared; their entries are on disk before the record is.
    """

    record: RunRecord
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingDropped:
    """These prompts will not run."""

    tenant: TenantId
    prompt_ids: tuple[PromptId, ...]


@dataclass(frozen=True, slots=True)
class HistoryDropped:
    """These ended prompts are forgotten; None: all of the tenant."""

    tenant: TenantId
    prompt_ids: tuple[PromptId, ...] | None


@dataclass(frozen=True, slots=True)
class UsageAdded:
    """So much more was used: the same twice, by day and by prompt. What is used is never taken back."""

    days: Mapping[DayKey, Amounts]
    cells: Mapping[CellKey, Cell]


Change = (
    Accepted | Started | Stopped | Parked | FilesNamed | Ended | PendingDropped | HistoryDropped | UsageAdded
)
