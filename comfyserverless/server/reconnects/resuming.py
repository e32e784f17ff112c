"""Say where running prompts are to a client that comes back, in the messages that it would have seen.

Everything comes from the records, so it does not matter when the client went away: also one that heard nothing
of a run, because its page was loaded anew, gets its start, its outputs so far, its progress and its node.
Every message only sets a state that is so already for a client that has seen it before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyserverless.control.views import NodesCached, RunRecord, RunStarted
from comfyserverless.core.ids import NodeId
from comfyserverless.server.wire import lifecycle_message

Message = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a client finds when it connects. remaining: length of its tenant's queue.

    running: its own prompts that run, oldest start first.
    """

    remaining: int
    running: Sequence[RunRecord] = ()

    @property
    def node(self) -> NodeId | None:
        """Return the node that runs now, of the prompt that started last."""
        nodes = [record.current_node for record in self.running if record.ended_ms is None]
        return next((node for node in reversed(nodes) if node is not None), None)


def so_far(record: RunRecord, progress: Message | None) -> list[Message]:
    """Return the messages that lead to where a running prompt is now.

    progress: its `progress_state`, if any. A prompt that is just ending has its outcome told instead of a node.
    """
    messages = [lifecycle_message(event) for event in record.messages]
    count = sum(isinstance(event, RunStarted | NodesCached) for event in record.messages)
    outputs: list[Message] = [
        ("executed", {**_place(record, node), "output": dict(ui)}) for node, ui in record.outputs.items()
    ]
    where: list[Message] = [] if progress is None else [progress]
    if record.current_node is not None and record.ended_ms is None:
        where.append(("executing", _place(record, record.current_node)))
    return [*messages[:count], *outputs, *where, *messages[count:]]


def _place(record: RunRecord, node: NodeId) -> dict[str, Any]:
    return {"node": node, "display_node": node, "prompt_id": record.prompt_id}
