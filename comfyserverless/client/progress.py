"""Show on the terminal how far a run is: one line with the node that works and its steps."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from tqdm import tqdm

_NAME_CHARS = 32


class ProgressLine:
    """A bar over the nodes of a prompt; within a node over its steps. Silent also if `out` is no terminal."""

    def __init__(self, nodes: int, out: TextIO, *, is_silent: bool = False) -> None:
        self._bar: tqdm[None] = tqdm(
            total=nodes,
            file=out,
            disable=True if is_silent else None,
            leave=False,
            bar_format="{desc} {bar} {n_fmt}/{total_fmt} [{elapsed}]",
        )
        self._nodes = nodes
        self._done = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def skip(self, nodes: int) -> None:
        """Count nodes whose results were kept from an earlier run."""
        self._done += nodes

    def begin(self, name: str) -> None:
        """Show that a node begins."""
        self._done = min(self._done + 1, self._nodes)
        self._show(name, self._done, self._nodes)

    def step(self, name: str, value: float, most: float) -> None:
        """Show a step of the node."""
        self._show(name, value, most)

    def _show(self, name: str, value: float, most: float) -> None:
        self._bar.set_description_str(f"{name[:_NAME_CHARS]:<{_NAME_CHARS}}", refresh=False)
        self._bar.total = most
        self._bar.n = value
        self._bar.refresh()
