"""Lines for people and for machines: one object a line, nothing secret, never too long."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.control.accounts.account import new_token
from comfyserverless.log_lines import LINE_BYTES, JsonFormatter, TextFormatter, about, redact


def record(text: str, *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("comfyserverless.some", logging.WARNING, "file", 1, text, args, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def parsed(made: logging.LogRecord, formatter: logging.Formatter | None = None) -> dict[str, Any]:
    text = (formatter or JsonFormatter()).format(made)
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_record_is_one_object_with_what_it_is_about() -> None:
    line = parsed(record("step %d of\n%s", 3, "x", prompt_id="p1", tenant="alice", other="not shown"))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "WARNING",
        "logger": "comfyserverless.some",
        "message": "step 3 of\nx",
        "prompt_id": "p1",
        "tenant": "alice",
    }


def test_a_traceback_stays_in_its_object() -> None:
    made = record("it failed")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = parsed(made)
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("ValueError: two\nlines")


def test_what_a_block_is_about_holds_within_it_and_what_a_record_says_counts_more() -> None:
    formatter = JsonFormatter({"worker": "w0.0"})
    with about(prompt_id="p1", tenant="alice"):
        with about(invocation="i1"):
            inner = parsed(record("x", tenant="bob"), formatter)
        outer = parsed(record("x"), formatter)
    after = parsed(record("x"), formatter)
    assert {name: inner[name] for name in ("prompt_id", "tenant", "invocation", "worker")} == {
        "prompt_id": "p1",
        "tenant": "bob",
        "invocation": "i1",
        "worker": "w0.0",
    }
    assert (outer["tenant"], "invocation" in outer) == ("alice", False)
    assert ("prompt_id" in after, after["worker"]) == (False, "w0.0")


async def test_a_task_that_begins_in_a_block_is_about_the_same() -> None:
    async def work() -> dict[str, Any]:
        await asyncio.sleep(0)
        return parsed(record("x"))

    with about(prompt_id="p1"):
        task = asyncio.create_task(work())
    assert (await task)["prompt_id"] == "p1"
    assert "prompt_id" not in await asyncio.create_task(work())


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_line_has_a_token(formatter: logging.Formatter) -> None:
    token = new_token()
    made = record("GET /ws?token=%s", token, prompt_id=token)
    try:
        raise ValueError(token)
    except ValueError:
        made.exc_info = sys.exc_info()
    text = formatter.format(made)
    assert token[4:] not in text
    assert "token=csl_[hidden]" in text
    assert redact(f"a {token}, b") == "a csl_[hidden], b"
    assert redact("postgresql://me:pass:word@host/x?y") == "postgresql://me:[hidden]@host/x?y"
    assert redact("http://127.0.0.1:8188/a@b and c://d@e:f") == "http://127.0.0.1:8188/a@b and c://d@e:f"


@given(message=st.text(max_size=30).map(lambda text: text * 500), failure=st.text(max_size=30))
def test_a_line_is_never_longer_than_a_pipe_takes_at_once(message: str, failure: str) -> None:
    made = record("%s", message, prompt_id="p" * 40, tenant="t" * 63, invocation="i" * 100, worker="w0.0")
    try:
        raise ValueError(failure * 500)
    except ValueError:
        made.exc_info = sys.exc_info()
    text = JsonFormatter().format(made)
    assert len(text) <= LINE_BYTES
    line = json.loads(text)
    assert line["exception"][-5:] == (failure * 500)[-5:] or not failure
    assert line["message"] or not message


PROGRAM = """
import logging, sys, threading, warnings
from comfyserverless import log_lines
log_lines.set_up("DEBUG", sys.argv[1], always={"worker": "w0.0"})
logging.getLogger("comfyserverless.part").debug("ours")
logging.getLogger("websockets.client").debug("theirs, with csl_secrets_and_more")
warnings.warn("beware")
thread = threading.Thread(target=lambda: 1 / 0, name="odd")
thread.start()
thread.join()
raise SystemError("the end")
"""


def test_all_that_a_process_says_is_json() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM, "json"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in said.stderr.splitlines()]
    assert [line["message"].split("\n")[0][-20:] for line in lines[:1]] == ["ours"]
    assert "beware" in lines[1]["message"]
    assert "ZeroDivisionError" in lines[2]["exception"]
    assert (lines[3]["level"], "SystemError: the end" in lines[3]["exception"]) == ("CRITICAL", True)
    assert len(lines) == 4
    assert {line["worker"] for line in lines} == {"w0.0"}
    assert said.returncode == 1


def test_text_is_what_people_read() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM, "text"], capture_output=True, text=True, check=False)
    first = said.stderr.splitlines()[0]
    assert first.endswith(" DEBUG ours")
    assert "theirs" not in said.stderr
