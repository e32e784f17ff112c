"""Have a server draw, over ComfyUI's API: submit graphs, wait for them, fetch the pictures."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from comfyserverless.bench.serving import served
from comfyserverless.core.errors import ComfyServerlessError, ConfigError
from comfyserverless.training.evaluation.questions import Question

_THREADS = 1
_STEPS = 20
_CFG = 5.0
_POLL_S = 0.05
_REQUEST_TIMEOUT_S = 30.0
_PICTURE_TIMEOUT_S = 300.0

Graph = dict[str, Any]


@contextmanager
def server_url(given: str | None, models: Path | None = None) -> Iterator[str]:
    """Yield the given URL, or that of a server with the demo models (and a models folder) that ends after."""
    if given is not None:
        yield given
        return
    flags = [] if models is None else ["--models-dir", str(models.resolve())]
    with (
        tempfile.TemporaryDirectory(prefix="comfyserverless-demo-") as folder,
        served(Path(folder), flags, _THREADS) as url,
    ):
        yield url


class AskingError(ComfyServerlessError):
    """The server did not draw what it was asked for; the message holds what it said."""


def question_graph(question: Question, checkpoint: str) -> Graph:
    """Return the graph that draws a question: Euler, the normal schedule, 20 steps, guidance 5."""
    width, height = question.size_px
    return {
        "4": _node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        "5": _node("EmptyLatentImage", width=width, height=height, batch_size=1),
        "6": _node("CLIPTextEncode", clip=["4", 1], text=question.text),
        "7": _node("CLIPTextEncode", clip=["4", 1], text=""),
        "3": _node(
            "KSampler", model=["4", 0], positive=["6", 0], negative=["7", 0], latent_image=["5", 0],
            seed=question.seed, steps=_STEPS, cfg=_CFG, sampler_name="euler", scheduler="normal", denoise=1.0,
        ),
        "8": _node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": _node("PreviewImage", images=["8", 0]),
    }  # fmt: skip


def _node(class_type: str, **inputs: Any) -> Graph:
    return {"class_type": class_type, "inputs": inputs}


class Artist:
    """A server that draws."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def draw(self, graphs: Sequence[Graph]) -> Generator[bytes, None, None]:
        """Yield the first picture of every graph as PNG, in order; all are queued at once.

        Close the iterator to end early: what is not drawn by then is taken back from the server.
        Raises ConfigError if nobody answers at the URL, and AskingError if a graph is refused or fails.
        """
        waiting: list[str] = []
        try:
            for graph in graphs:
                waiting.append(self._submit(graph))
            while waiting:
                picture = self._view(self._first_picture(waiting[0]))
                del waiting[0]
                yield picture
        finally:
            self._take_back(waiting)

    def _take_back(self, prompt_ids: Sequence[str]) -> None:
        """Remove prompts from the queue, and interrupt the first one; the server may be gone meanwhile."""
        if not prompt_ids:
            return
        with suppress(ConfigError, AskingError):
            self._request("/queue", json.dumps({"delete": list(prompt_ids)}).encode(), "application/json")
            self._request("/interrupt", json.dumps({"prompt_id": prompt_ids[0]}).encode(), "application/json")

    def upload(self, picture: Path) -> None:
        """Put a picture into the server's input folder under its own name; replaces one of that name."""
        mark = uuid.uuid4().hex
        head = f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="{picture.name}"\r\n'
        flag = f'--{mark}\r\nContent-Disposition: form-data; name="overwrite"\r\n\r\ntrue\r\n--{mark}--\r\n'
        body = f"{head}Content-Type: image/png\r\n\r\n".encode() + picture.read_bytes() + f"\r\n{flag}".encode()
        self._request("/upload/image", body, f"multipart/form-data; boundary={mark}")

    def _submit(self, graph: Graph) -> str:
        answer = self._object("/prompt", json.dumps({"prompt": graph}).encode(), "application/json")
        if "prompt_id" not in answer:
            raise self._foreign("/prompt")
        return str(answer["prompt_id"])

    def _view(self, picture: dict[str, str]) -> bytes:
        query = urllib.parse.urlencode({key: picture[key] for key in ("filename", "subfolder", "type")})
        return self._request(f"/view?{query}")

    def _first_picture(self, prompt_id: str) -> dict[str, str]:
        deadline_s = time.monotonic() + _PICTURE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            entry = self._object(f"/history/{prompt_id}").get(prompt_id)
            if entry is None:
                time.sleep(_POLL_S)
                continue
            for output in entry["outputs"].values():
                for picture in output.get("images", ()):
                    return {str(key): str(value) for key, value in picture.items()}
            raise AskingError(f"a prompt ended without a picture: {json.dumps(entry['status'])}")
        raise AskingError(f"no picture within {_PICTURE_TIMEOUT_S:.0f} s")

    def _object(self, path: str, body: bytes | None = None, kind: str = "") -> Graph:
        try:
            answer = json.loads(self._request(path, body, kind))
        except ValueError as exc:
            raise self._foreign(path) from exc
        if not isinstance(answer, dict):
            raise self._foreign(path)
        return answer

    def _foreign(self, path: str) -> ConfigError:
        return ConfigError(f"--server {self._url}: the answer to {path} is not that of a ComfyUI server")

    def _request(self, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        try:
            request = urllib.request.Request(self._url + path, body, {"Content-Type": kind} if kind else {})
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:
                data: bytes = answer.read()
        except urllib.error.HTTPError as exc:
            raise AskingError(
                f"{path} was answered with {exc.code}: {exc.read().decode(errors='replace')}"
            ) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:  # ValueError: not a URL
            raise ConfigError(f"--server {self._url}: {exc}") from exc
        return data
