"""What cannot be called is refused when it is submitted, and no message repeats it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.control.webhooks.target import Target, WebhookError, read_target

GOOD = "https://example.com/hook?key=hidden"


def test_address_is_read_from_a_text_or_an_object() -> None:
    assert read_target(None) is None
    assert read_target(GOOD) == Target(GOOD)
    assert read_target({"url": GOOD, "secret": "12345678"}) == Target(GOOD, "12345678")
    assert read_target({"url": GOOD, "secret": None}) == Target(GOOD)


@pytest.mark.parametrize(
    "value",
    [
        "",
        3,
        [],
        True,
        {},
        {"url": None},
        {"url": GOOD, "header": "x"},
        {"url": GOOD, "secret": "short"},
        {"url": GOOD, "secret": 12345678},
        {"url": GOOD, "secret": "x" * 257},
        {"url": GOOD, "secret": "with\nnewline"},
        "ftp://example.com/hidden",
        "file:///etc/hidden",
        "example.com/hidden",
        "//example.com/hidden",
        "javascript:hidden",
        "http://hidden@example.com/",
        "http://user:hidden@example.com/",
        "http://@example.com/hidden",
        "http://:hidden@example.com/",
        "http://example.com:99999/hidden",
        "http://example.com:0/hidden",
        "http://exa mple.com/hidden",
        "http://example.com/hidden\r\nX-Header: 1",
        "http://example.com\\@hidden/",
        "http:///hidden",
        "http://127.1/hidden",
        "http://2130706433/hidden",
        "http://0x7f000001/hidden",
        "http://0x7f.1/hidden",
        "http://1.2.3/hidden",
        "http://[::1/hidden",
        "https://example.com/" + "x" * 2048,
    ],
)
def test_bad_targets_are_refused_without_repeating_them(value: Any) -> None:
    with pytest.raises(WebhookError) as caught:
        read_target(value)
    assert "hidden" not in str(caught.value)


def test_neither_logs_nor_representations_show_path_or_secret() -> None:
    target = Target(GOOD, "12345678")
    assert target.shown == "https://example.com"
    assert "hidden" not in repr(target)
    assert "12345678" not in repr(target)
    assert Target("http://EXAMPLE.com.:80/").host == "example.com"


@given(st.one_of(st.text(), st.builds("http://{}".format, st.text(max_size=30))))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        target = read_target(text)
    except WebhookError:
        return
    assert target is not None
    assert target.host
    assert "@" not in target.shown
