"""Search texts with regular expressions in Python's dialect; a search that takes too long is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import regex

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn

TIME_LIMIT_S = 5.0
_MAX_PATTERN_CHARS = 20_000
_FLAGS: Mapping[str, int] = MappingProxyType(
    {"case_insensitive": regex.IGNORECASE, "multiline": regex.MULTILINE, "dotall": regex.DOTALL}
)


class TextMatch(HostFn):
    """Tell whether a text holds what a pattern describes."""

    name = "text.match"
    takes = "text pattern flags"
    gives = "matches"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return true if the pattern is found anywhere; a pattern that is wrong finds nothing.

        Raises PromptError if the search takes longer than `TIME_LIMIT_S`.
        """
        try:
            pattern = _compiled(inputs)
        except regex.error:
            return {"matches": False}
        found = _in_time(lambda: pattern.search(inputs["text"], timeout=TIME_LIMIT_S, concurrent=True))
        return {"matches": found is not None}


def _first_match(found: Iterator[Any], groups: int, group: int) -> list[str]:
    return [match[0] for match in _first(found)]


def _all_matches(found: Iterator[Any], groups: int, group: int) -> list[str]:
    """Take the whole match, or the first group of patterns that have groups, as Python's findall does."""
    return [match[1 if groups else 0] or "" for match in found]


def _first_group(found: Iterator[Any], groups: int, group: int) -> list[str]:
    return [match[group] or "" for match in _first(found) if group <= groups]


def _all_groups(found: Iterator[Any], groups: int, group: int) -> list[str]:
    return [match[group] or "" for match in found] if 0 < groups >= group else []


def _first(found: Iterator[Any]) -> list[Any]:
    match = next(found, None)
    return [] if match is None else [match]


MODES: Mapping[str, Callable[[Iterator[Any], int, int], Sequence[str]]] = MappingProxyType(
    {
        "First Match": _first_match,
        "All Matches": _all_matches,
        "First Group": _first_group,
        "All Groups": _all_groups,
    }
)
"""What is taken of the matches, by ComfyUI's names."""


class TextExtract(HostFn):
    """Take what a pattern finds out of a text."""

    name = "text.extract"
    takes = "text pattern flags mode group limit"
    gives = "text"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the matches of a mode, one a line; nothing for a pattern that is wrong.

        limit: characters that the result may have. Raises PromptError if it has more, or takes too long.
        """
        try:
            pattern = _compiled(inputs)
        except regex.error:
            return {"text": ""}

        def search() -> str:
            found = pattern.finditer(inputs["text"], timeout=TIME_LIMIT_S, concurrent=True)
            return "\n".join(MODES[inputs["mode"]](found, pattern.groups, inputs["group"]))

        return {"text": _limited(_in_time(search), inputs["limit"])}


class TextSubstitute(HostFn):
    """Replace what a pattern finds in a text."""

    name = "text.substitute"
    takes = "text pattern flags replacement count limit"
    gives = "text"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        r"""Return the text with up to `count` matches replaced (0: all); `\1` or `\g<name>` stand for groups.

        limit: characters that the result may have. Raises PromptError if it has more, takes too long, or if the
        pattern or the replacement is wrong.
        """
        text, room = inputs["text"], inputs["limit"]
        try:
            pattern = _compiled(inputs)
            return {
                "text": _in_time(
                    lambda: _substituted(pattern, text, inputs["replacement"], inputs["count"], room)
                )
            }
        except (regex.error, IndexError) as exc:
            raise PromptError(f"The regular expression {_brief(inputs['pattern'])} is wrong: {exc}") from exc


def _substituted(pattern: Any, text: str, replacement: str, count: int, room: int) -> str:
    """Replace match by match, so that a text that becomes too long is noticed on the way."""
    parts: list[str] = []
    length = end = 0
    found = pattern.finditer(text, timeout=TIME_LIMIT_S, concurrent=True)
    for match in islice(found, count or None):
        parts += (text[end : match.start()], match.expand(replacement))
        length += len(parts[-2]) + len(parts[-1])
        _check_room(length, room)
        end = match.end()
    parts.append(text[end:])
    return _limited("".join(parts), room)


def _compiled(inputs: Mapping[str, Any]) -> Any:
    pattern = inputs["pattern"]
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise PromptError(
            f"The regular expression has {len(pattern)} characters; {_MAX_PATTERN_CHARS} are allowed"
        )
    return regex.compile(pattern, flags=sum(_FLAGS[flag] for flag in inputs["flags"]) | regex.VERSION0)


def _in_time(search: Callable[[], Any]) -> Any:
    try:
        return search()
    except TimeoutError as exc:
        raise PromptError(f"The regular expression was given up after {TIME_LIMIT_S:g} s") from exc


def _limited(text: str, limit: int) -> str:
    _check_room(len(text), limit)
    return text


def _check_room(chars: int, limit: int) -> None:
    if chars > limit:
        raise PromptError(f"The text would have more than {limit} characters")


def _brief(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")
