"""Show how two tenants share a server: one sends a heavy graph, the other light ones meanwhile.

Start a server with two accounts, then run this with their tokens:

    comfyserverless tenant add heavy
    comfyserverless tenant add light
    comfyserverless serve
    python graphs/two_tenants.py --heavy TOKEN --light TOKEN

It prints how long each light prompt took while the heavy one ran, and who got how many seconds of GPU time.
Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

GRAPH = json.loads((Path(__file__).parent / "text_to_image.json").read_text())
HEAVY_STEPS = 1000
HEAVY_BATCH = 4
POLL_S = 0.1


class Tenant:
    """Talk to the server with one tenant's token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def call(self, path: str, body: Any = None) -> Any:
        """Send a request; returns the JSON of the answer, None if it is empty."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def submit(self, graph: dict[str, Any]) -> str:
        """Enqueue a graph; returns its prompt id."""
        return str(self.call("/prompt", {"prompt": graph})["prompt_id"])

    def wait(self, prompt_id: str) -> float:
        """Wait until a prompt has ended; returns the seconds that took."""
        started_s = time.monotonic()
        while not self.call(f"/history/{prompt_id}"):
            time.sleep(POLL_S)
        return time.monotonic() - started_s

    def usage(self) -> dict[str, Any]:
        """Return this tenant's row of `/comfyserverless/tenants`."""
        rows: list[dict[str, Any]] = self.call("/comfyserverless/tenants")["tenants"]
        return rows[0]


def variant(seed: int, **changes: int) -> dict[str, Any]:
    """Return the text-to-image sample with another seed, and other values for the inputs that are named."""
    graph: dict[str, Any] = copy.deepcopy(GRAPH)
    for node in graph.values():
        node["inputs"].update({key: value for key, value in changes.items() if key in node["inputs"]})
        if "seed" in node["inputs"]:
            node["inputs"]["seed"] = seed
    return graph


def run(heavy: Tenant, light: Tenant, duration_s: float) -> None:
    """Let both work for a while, and print who got what."""
    before = [tenant.usage()["service_s"]["gpu"] for tenant in (heavy, light)]
    large = heavy.submit(variant(1, steps=HEAVY_STEPS, batch_size=HEAVY_BATCH))
    write(f"heavy: one prompt of {HEAVY_STEPS} steps on {HEAVY_BATCH} pictures is sent")
    ends_s = time.monotonic() + duration_s
    count = 0
    while time.monotonic() < ends_s and not heavy.call(f"/history/{large}"):
        count += 1
        write(f"light: prompt {count} took {light.wait(light.submit(variant(1000 + count))):.1f} s")
    for name, tenant, used_s in zip(("heavy", "light"), (heavy, light), before, strict=True):
        row = tenant.usage()
        write(f"{name}: {row['service_s']['gpu'] - used_s:.1f} s of GPU time, weight {row['weight']:g}")
    heavy.call("/interrupt", {"prompt_id": large})


def write(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read the flags and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8188")
    parser.add_argument("--heavy", required=True, metavar="TOKEN")
    parser.add_argument("--light", required=True, metavar="TOKEN")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long light prompts are sent")
    arguments = parser.parse_args()
    run(Tenant(arguments.url, arguments.heavy), Tenant(arguments.url, arguments.light), arguments.seconds)


if __name__ == "__main__":
    main()
