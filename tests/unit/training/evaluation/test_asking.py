"""Ask what is not a ComfyUI server: every strange answer is an error that names the URL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from comfyserverless.core.errors import ConfigError
from comfyserverless.training.evaluation.asking import Artist


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """Answer one request with the same bytes, whatever it was."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def http(body: str) -> bytes:
    return f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "reply",
    [b"", b"SSH-2.0-server\r\n", http("<html>"), http("[]"), http("{}"), http("{}{}")[:-1]],
    ids=["nothing", "not HTTP", "not JSON", "not an object", "no prompt id", "cut short"],
)
def test_strange_answer_names_the_server(reply: bytes) -> None:
    with answering(reply) as url, pytest.raises(ConfigError, match=f"--server {url}"):
        next(Artist(url).draw([{}]))


@pytest.mark.parametrize(
    "url", ["nowhere", "127.0.0.1:8188", "http://", "http://a b", "http://a:b", "http://..a"]
)
def test_what_is_no_url_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="--server"):
        next(Artist(url).draw([{}]))
