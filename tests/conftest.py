"""Give tests the tiny models and a real server; mark tests by their folder; draw the same in every CI run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support.server import TEST_ENV, RunningServer, ServerOptions, recorded_kernels
from tests.support.tiny_models import ensure_tiny_models

# Before anything imports torch: tests compute with one thread, and with the kernels of ComfyUI's recordings
# where the CPU has them, so that bits are the same on machines that are not.
for _name, _value in (TEST_ENV | recorded_kernels()).items():
    os.environ.setdefault(_name, _value)

# How long an example takes is the machine's affair: a property holds on a busy one, too. CI tries the same
# examples and the same order of tests in every run, so that what was green once stays green; at home both
# are drawn anew each time, and find what nobody has thought of.
IN_CI = bool(os.environ.get("CI"))
CI_ORDER = 1
PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("home", hypothesis.settings.get_profile("default"), **PATIENT)
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("ci"), **PATIENT)
hypothesis.settings.load_profile("ci" if IN_CI else "home")

MARKED_FOLDERS = (
    "process",
    "parity",
    "browser",
    "contract",
    "gpu",
    "native",
    "scenario",
    "sim",
    "arch",
    "unit",
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give CI a fixed order of tests, unless the command line names one."""
    if IN_CI and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = CI_ORDER


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let every test draw the same random numbers of torch, on one thread, whatever ran before."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)
        torch.set_num_threads(1)


#: Folders whose tests start real processes, which takes minutes on a slow or busy machine.
PATIENT_FOLDERS = {"process", "parity", "browser", "contract"}
PATIENCE_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the folder of tests/ that it lies in; give those of some folders more time."""
    for item in items:
        if PATIENT_FOLDERS.intersection(item.path.parts) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))
        for folder in MARKED_FOLDERS:
            if folder in item.path.parts:
                item.add_marker(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Say which process runs what, where there are several."""
    from tests.support.halves import Halves

    return Halves(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no server behind when test processes were ended before they could stop theirs."""
    if (shared := session.config.pluginmanager.getplugin("dsession")) is not None:
        from tests.support.halves import end_what_is_left

        end_what_is_left(shared.nodemanager.testrunuid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print features by families of models, passed / all, if recorded cases ran.

    Here and not beside the cases: with several test processes only this file is read by the one that prints.
    """
    from tests.support.parity_report import outcomes_of, table

    if outcomes := outcomes_of(terminalreporter.stats):
        terminalreporter.section("parity: passed / all")
        for line in table(outcomes):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tiny_models() -> Path:
    """Return a models folder with the tiny SD 1.5 and SDXL models; made once, kept in build/."""
    return ensure_tiny_models()


@pytest.fixture(scope="session")
def server(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server that all tests share, so that torch is imported once; leave it as you found it.

    It has the tiny models and the demo model. Use `start_server` to change flags or to hurt it.
    """
    running = RunningServer.start(ServerOptions(tmp_path_factory.mktemp("server"), models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts a server of this test only: `start_server(*flags, models=, env=)`.

    Servers that still run at the end of the test are stopped, and must leave nothing behind.
    """
    started: list[RunningServer] = []

    def start(*flags: str, models: Path | None = None, **more: dict[str, str]) -> RunningServer:
        base = tmp_path / f"server{len(started)}"
        started.append(RunningServer.start(ServerOptions(base, models, flags, more.get("env", {}))))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.stop()
