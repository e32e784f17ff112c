"""Define what a node returns in place of a value to hold up those that would use it.

Packs import the class as `comfy_execution.graph.ExecutionBlocker` or from `comfy_execution.graph_utils`; there
must be only this one.
"""

from __future__ import annotations


class ExecutionBlocker:
    """Stand for a value that is not there: nodes that get it do not run.

    message: shown once as an error at the first node that is held up; None for silence.
    """

    def __init__(self, message: str | None) -> None:
        self.message = message
