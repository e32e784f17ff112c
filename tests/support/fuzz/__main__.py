"""Fuzz a server of one's own for some minutes: `python -m tests.support.fuzz --minutes 10`.

Starts a server with the tiny models in a temporary folder, and throws at it, by turns: requests for every
route, graphs about every node class, broken graphs, and websocket messages. What should not have happened (a
5xx, an error of a type that is not ours, a hang, a dead worker, a fault in the log) is printed with what
brought it about; the exit status is 1 then. `--seed` repeats a run, `--only` picks parts, `--nodes` node
classes, and `--extreme 0.3` takes more numbers from the ends of their ranges. `--local` runs graphs in this
process instead, which tries many more of them. `--limit-gb` bounds the memory of the processes, because
prompts may ask for much.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.support.client import Client
from tests.support.fuzz.graphs import break_graph, sound_graphs
from tests.support.fuzz.judging import (
    Report,
    is_alive,
    judge_log,
    judge_prompt,
    maker_for,
    provide_inputs,
    worker_ids,
)
from tests.support.fuzz.requests import RequestMaker, judge_request
from tests.support.fuzz.sockets import judge_messages
from tests.support.server import RunningServer, ServerOptions
from tests.support.tiny_models import ensure_tiny_models

PARTS = ("requests", "nodes", "broken", "sockets")


async def fuzz(server: RunningServer, given: argparse.Namespace, report: Report) -> None:
    """Run rounds until the time is over."""
    maker, sound = maker_for(server.options.base, server.options.models, given.extreme), sound_graphs()
    requests = RequestMaker(server.options.base / "routes")
    names = given.nodes.split(",") if given.nodes else sorted(maker.classes)
    until_s, turn = time.monotonic() + given.minutes * 60, 0
    async with Client(server.url) as client:
        workers = await worker_ids(client)
        while time.monotonic() < until_s and await is_alive(client):
            rng = random.Random(f"{given.seed}/{turn}")
            for place in range(0, 8, 2) if "nodes" in given.only else ():
                pair = [names[(turn * 8 + place + each) % len(names)] for each in (0, 1)]
                drawn = [maker.about(rng, name) for name in pair]
                await asyncio.gather(*(judge_prompt(client, graph, report) for graph in drawn))
            for _ in range(4 if "broken" in given.only else 0):
                await judge_prompt(client, break_graph(rng, rng.choice(sound)), report)
            for _ in range(40 if "requests" in given.only else 0):
                await judge_request(client.session, requests.draw(rng), report)
            if "sockets" in given.only:
                await judge_messages(client.session, rng, report)
            workers = await _note_deaths(client, workers, report)
            turn += 1
        if not await is_alive(client):
            report.find("the server does not answer any more", f"turn {turn}")


async def _note_deaths(client: Client, before: list[object], report: Report) -> list[object]:
    now = await worker_ids(client)
    if now != before:
        report.find(f"a worker died: {before} -> {now}", "one of the prompts before")
    return now


def main() -> int:
    """Parse flags, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--nodes", default="", help="node classes, with commas between; all by default")
    parser.add_argument("--extreme", type=float, default=0.06)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--limit-gb", type=float, default=6.0)
    given = parser.parse_args()
    limit = int(given.limit_gb * (1 << 30))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    report = Report(is_loud=True)
    report.say(f"seed {given.seed}")
    models = ensure_tiny_models()
    with tempfile.TemporaryDirectory() as folder:
        if given.local:
            from tests.support.fuzz.local import fuzz_locally

            fuzz_locally(Path(folder), models, given, report)
        else:
            _fuzz_server(ServerOptions(Path(folder), models=models), given, report)
    report.say(report.summary())
    return 1 if report.findings else 0


def _fuzz_server(options: ServerOptions, given: argparse.Namespace, report: Report) -> None:
    server = RunningServer.start(options)
    try:
        provide_inputs(options.base)
        asyncio.run(fuzz(server, given, report))
        judge_log(server.log(), report)
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
