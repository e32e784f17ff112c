"""Name the identifiers that rooms exchange; all are plain text on the wire."""

from __future__ import annotations

from typing import NewType

TenantId = NewType("TenantId", str)
"""Who is charged; the single-user default is `default`."""

PromptId = NewType("PromptId", str)
"""One submitted graph run: a canonical UUID, the same string that ComfyUI calls job id."""

NodeId = NewType("NodeId", str)
"""A node's key in the API graph; ids of subgraph members hold `:`."""

InvocationId = NewType("InvocationId", str)
"""One call of a model function, unique over the life of a server."""

WorkerId = NewType("WorkerId", str)
"""One incarnation of a worker process (`w0.3` is the fourth start of slot 0): a new start is a new id."""

TensorId = NewType("TensorId", str)
"""One immutable tensor, unique over the life of a server."""

DEFAULT_TENANT = TenantId("default")
