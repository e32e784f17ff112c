"""Regular expressions: what the nodes ask of the worker."""

from __future__ import annotations

from comfyserverless.nodes.utility.values import MAX_TEXT_CHARS
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import output

_SWITCHES = {"case_insensitive": True, "multiline": False, "dotall": True}
_SUBJECT = {"text": "t", "pattern": "p", "flags": ["case_insensitive", "dotall"]}


async def test_match_gives_the_workers_answer_itself() -> None:
    ctx = FakeContext(results={"text.match": {"matches": True}})
    assert await output("RegexMatch", ctx, string="t", regex_pattern="p", **_SWITCHES) is True
    assert ctx.calls[0].inputs == _SUBJECT


async def test_extract_names_mode_and_group() -> None:
    ctx = FakeContext(results={"text.extract": {"text": "found"}})
    asked = {"string": "t", "regex_pattern": "p", "mode": "All Groups", "group_index": 2, **_SWITCHES}
    assert await output("RegexExtract", ctx, **asked) == "found"
    assert ctx.calls[0].inputs == {**_SUBJECT, "mode": "All Groups", "group": 2, "limit": MAX_TEXT_CHARS}


async def test_replace_ignores_case_and_replaces_all_if_nothing_is_said() -> None:
    ctx = FakeContext(results={"text.substitute": {"text": "made"}})
    assert await output("RegexReplace", ctx, string="t", regex_pattern="p", replace="r") == "made"
    asked = {"text": "t", "pattern": "p", "flags": ["case_insensitive"], "replacement": "r", "count": 0}
    assert ctx.calls[0].inputs == {**asked, "limit": MAX_TEXT_CHARS}
