"""Have a server draw, over ComfyUI's API: submit graphs, wait for them, fetch the pictures."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    def draw(self, graphs: Sequence[Graph]) -> Iterator[bytes]:
        """Yield the first picture of every graph as PNG, in order; all are queued at once.

        Raises ConfigError if nobody answers at the URL, and AskingError if a graph is refused or fails.
        """
        for prompt_id in [self._submit(graph) for graph in graphs]:
            entry = self._first_picture(prompt_id)
            query = urllib.parse.urlencode({key: entry[key] for key in ("filename", "subfolder", "type")})
            yield self._request(f"/view?{query}")

    def upload(self, picture: Path) -> None:
        """Put a picture into the server's input folder under its own name; replaces one of that name."""
        mark = uuid.uuid4().hex
        head = f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="{picture.name}"\r\n'
        flag = f'--{mark}\r\nContent-Disposition: form-data; name="overwrite"\r\n\r\ntrue\r\n--{mark}--\r\n'
        body = f"{head}Content-Type: image/png\r\n\r\n".encode() + picture.read_bytes() + f"\r\n{flag}".encode()
        self._request("/upload/image", body, f"multipart/form-data; boundary={mark}")

    def _submit(self, graph: Graph) -> str:
        answer = self._request("/prompt", json.dumps({"prompt": graph}).encode(), "application/json")
        return str(json.loads(answer)["prompt_id"])

    def _first_picture(self, prompt_id: str) -> dict[str, str]:
        deadline_s = time.monotonic() + _PICTURE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            entry = json.loads(self._request(f"/history/{prompt_id}")).get(prompt_id)
            if entry is None:
                time.sleep(_POLL_S)
                continue
            for output in entry["outputs"].values():
                for picture in output.get("images", ()):
                    return {str(key): str(value) for key, value in picture.items()}
            raise AskingError(f"a prompt ended without a picture: {json.dumps(entry['status'])}")
        raise AskingError(f"no picture within {_PICTURE_TIMEOUT_S:.0f} s")

    def _request(self, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        request = urllib.request.Request(self._url + path, body, {"Content-Type": kind} if kind else {})
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:
                data: bytes = answer.read()
        except urllib.error.HTTPError as exc:
            raise AskingError(
                f"{path} was answered with {exc.code}: {exc.read().decode(errors='replace')}"
            ) from exc
        except (urllib.error.URLError, ConnectionError, TimeoutError) as exc:
            raise ConfigError(f"--server {self._url}: {exc}") from exc
        return data
