"""End a run of recorded cases with a table of what passed."""

from __future__ import annotations

import pytest

from tests.support.parity_report import outcomes_of, table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print features by families of models, passed / all, if recorded cases ran."""
    if outcomes := outcomes_of(terminalreporter.stats):
        terminalreporter.section("parity: passed / all")
        for line in table(outcomes):
            terminalreporter.write_line(line)
