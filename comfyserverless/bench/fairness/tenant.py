"""Talk to a server with one tenant's token: keep prompts waiting, and read what came of them."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from comfyserverless.bench.workload import Workload

_TIMEOUT_S = 30.0


class Caller:
    """Send requests with a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def call(self, path: str, body: Any = None) -> Any:
        """Send a request; returns the JSON of the answer, None if it is empty."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@dataclass(frozen=True, slots=True)
class EndedPrompt:
    """A prompt that succeeded. Times are Unix milliseconds."""

    prompt_id: str
    created_ms: int
    ended_ms: int


class BusyTenant(Caller):
    """One tenant and the prompts that it sends. images: in each of them."""

    def __init__(self, url: str, token: str, workload: Workload, images: int) -> None:
        super().__init__(url, token)
        self._workload = workload
        self._images = images
        self._sent = 0

    def send(self) -> str:
        """Send one more prompt, which no cache knows; returns its id."""
        self._sent += 1
        graph = self._workload.prompt(self._sent)
        graph["4"]["inputs"]["batch_size"] = self._images
        return str(self.call("/prompt", {"prompt": graph})["prompt_id"])

    def remaining(self) -> int:
        """Return how many prompts run or wait."""
        return int(self.call("/prompt")["exec_info"]["queue_remaining"])

    def fill(self, count: int) -> None:
        """Send prompts until so many run or wait."""
        for _ in range(count - self.remaining()):
            self.send()

    def ended(self) -> list[EndedPrompt]:
        """List the prompts that succeeded, oldest first."""
        found = []
        for prompt_id, entry in self.call("/history").items():
            times = {name: data["timestamp"] for name, data in entry["status"]["messages"]}
            if "execution_success" in times:
                created_ms = entry["prompt"][3]["create_time"]
                found.append(EndedPrompt(prompt_id, created_ms, times["execution_success"]))
        return found
