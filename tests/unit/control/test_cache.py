"""Node results by signature: classic, LRU, none."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.control.cache import CachedNode, NodeCache
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import InvocationId
from comfyserverless.graph.lowering import NodeResult


def entry(*invocations: str, files: tuple[str, ...] = ()) -> CachedNode:
    return CachedNode(NodeResult(), tuple(InvocationId(i) for i in invocations), files)


def test_classic_cache_drops_what_no_prompt_in_progress_uses() -> None:
    cache = NodeCache("classic")
    a, b = entry("1"), entry("2")
    assert cache.put("a", a) == []
    assert cache.put("b", b) == []
    assert cache.retain({"b", "c"}) == [a]
    assert cache.get("a") is None
    assert cache.get("b") is b


def test_added_nodes_are_kept_while_the_node_they_come_from_is_there() -> None:
    cache = NodeCache("classic")
    home = ("1", "Loop")
    added = CachedNode(NodeResult(), (), home=home)
    cache.put("a", added)
    assert cache.retain(set(), {home}) == []
    assert cache.drop_added({home}, {"a"}) == []
    assert cache.drop_added({home}, set()) == [added]
    cache.put("a", added)
    assert cache.retain(set(), {("2", "Loop")}) == [added]


def test_replaced_entry_is_returned_so_that_its_pins_can_go() -> None:
    cache = NodeCache("classic")
    old, new = entry("1"), entry("2")
    cache.put("a", old)
    assert cache.put("a", new) == [old]


def test_lru_cache_keeps_the_latest_used() -> None:
    cache = NodeCache("lru", 2)
    a, b, c = entry("1"), entry("2"), entry("3")
    cache.put("a", a)
    cache.put("b", b)
    cache.get("a")
    assert cache.put("c", c) == [b]
    assert cache.retain(set()) == []
    assert cache.get("a") is a


def test_cache_none_and_unsigned_nodes_keep_nothing() -> None:
    one = entry("1")
    assert NodeCache("none").put("a", one) == [one]
    assert NodeCache("classic").put(None, one) == [one]
    assert NodeCache("classic").get(None) is None


def test_entry_whose_file_is_gone_is_no_hit(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_text("x")
    cache = NodeCache("classic")
    cache.put("a", entry("1", files=(str(path),)))
    assert cache.get("a") is not None
    path.unlink()
    assert cache.get("a") is None


def test_discard_drops_entries_that_mention_lost_results() -> None:
    cache = NodeCache("classic")
    a, b = entry("1", "2"), entry("3")
    cache.put("a", a)
    cache.put("b", b)
    assert cache.discard({InvocationId("2")}) == [a]
    assert cache.invocations() == ["3"]
    assert cache.clear() == [b]
    assert len(cache) == 0


@pytest.mark.parametrize(("mode", "limit"), [("best", 0), ("lru", 0)])
def test_bad_settings_are_refused(mode: str, limit: int) -> None:
    with pytest.raises(ConfigError):
        NodeCache(mode, limit)
