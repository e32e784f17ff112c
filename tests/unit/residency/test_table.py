"""The account of layers: what leaves for what, and the laws that hold whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from comfyserverless.core.errors import CapacityError, InvariantError, NoRoomError
from comfyserverless.residency.policy import POLICIES, LayerKey, PolicyName
from comfyserverless.residency.table import LayerTable, Reservation


def table_of(budget_bytes: int, policy: PolicyName = "layers", **models: list[int]) -> LayerTable:
    table = LayerTable(budget_bytes, policy)
    for name, sizes_bytes in models.items():
        table.add(name, sizes_bytes, prefix=0)
    return table


def load(table: LayerTable, *keys: LayerKey, is_urgent: bool = False) -> list[LayerKey]:
    """Load layers one by one; returns what left for them."""
    gone: list[LayerKey] = []
    for key in keys:
        reservation = table.reserve([key], is_urgent)
        assert reservation is not None, key
        gone += reservation.evicted
        table.loaded(reservation)
    table.validate()
    return gone


def all_of(name: str, count: int) -> list[LayerKey]:
    return [(name, layer) for layer in range(count)]


def test_space_comes_from_the_end_of_the_model_that_was_used_least_recently() -> None:
    table = table_of(8, a=[2, 2], b=[2, 2], c=[3])
    load(table, *all_of("a", 2), *all_of("b", 2))
    assert load(table, ("c", 0)) == [("a", 1), ("a", 0)]
    assert (table.present("b"), table.total_bytes) == ([0, 1], 7)


def test_a_touched_model_outlives_the_other() -> None:
    table = table_of(4, a=[2], b=[2], c=[2])
    load(table, ("a", 0), ("b", 0))
    table.touch("a")
    assert load(table, ("c", 0)) == [("b", 0)]


def test_layers_in_use_stay_and_the_newcomer_has_to_wait() -> None:
    table = table_of(4, a=[2, 2], b=[2])
    load(table, *all_of("a", 2))
    table.pin(all_of("a", 2))
    assert table.reserve([("b", 0)], is_urgent=True) is None
    table.unpin([("a", 0)])
    assert load(table, ("b", 0)) == [("a", 0)]


def test_wanted_layers_leave_only_for_a_run_that_stands_still() -> None:
    table = table_of(4, a=[2, 2], b=[2])
    load(table, *all_of("a", 2))
    table.want(all_of("a", 2))
    assert table.reserve([("b", 0)]) is None
    assert load(table, ("b", 0), is_urgent=True) == [("a", 1)]


def test_what_can_never_fit_is_refused_with_the_flag_to_change() -> None:
    with pytest.raises(CapacityError, match=r"need 5 bytes at once.* is 4 bytes.*--device-memory"):
        table_of(4, a=[5]).reserve([("a", 0)])


def test_a_failed_load_gives_its_space_back() -> None:
    table = table_of(4, a=[4], b=[4])
    reservation = table.reserve([("a", 0)])
    assert reservation is not None
    table.failed(reservation)
    table.validate()
    assert table.total_bytes == 0
    load(table, ("b", 0))


def test_claimed_bytes_come_off_at_once_and_from_layers_in_use_once_they_are_let_go() -> None:
    table = table_of(8, a=[4], b=[4])
    load(table, ("a", 0), ("b", 0))
    table.pin([("a", 0)])
    assert table.claim(6) == [("b", 0)]
    assert table.trim() == []
    table.unpin([("a", 0)])
    assert table.trim() == [("a", 0)]
    with pytest.raises(NoRoomError, match="6 are taken by results"):
        table.reserve([("a", 0)])
    assert table.claim(0) == []
    load(table, ("a", 0))


def test_shrinking_keeps_the_front_and_what_is_in_use() -> None:
    table = table_of(8, a=[2, 2, 2, 2])
    load(table, *all_of("a", 4))
    table.pin([("a", 3)])
    assert table.shrink("a", 1) == [("a", 1), ("a", 2)]
    assert table.present("a") == [0, 3]


def test_a_layer_of_no_bytes_is_always_there() -> None:
    table = table_of(2, a=[0, 2])
    assert table.are_resident([("a", 0)])
    load(table, ("a", 1))
    assert table.is_complete("a")


def test_four_models_in_the_memory_of_two_and_a_half_keep_their_fronts() -> None:
    table = LayerTable(40)
    for name in "abcd":
        table.add(name, [1] * 16)
    for name in "abcdabcdabcd":
        table.touch(name)
        keys = all_of(name, 16)
        table.want(keys)
        for key in keys:
            if not table.are_resident([key]):
                load(table, key, is_urgent=True)
        table.want(keys, by=-1)
    assert [len(table.present(name)) for name in "abcd"] == [8, 8, 8, 16]
    assert table.present("a") == list(range(8))


def test_whole_models_and_workflows_leave_as_one() -> None:
    for policy, gone in (("models", ["a"]), ("workflows", ["a", "b"])):
        table = LayerTable(8, policy)
        for name, group in (("a", "x"), ("b", "x"), ("c", "y")):
            table.add(name, [1, 1], group)
        load(table, *all_of("a", 2), *all_of("b", 2))
        table.claim(2)
        load(table, ("c", 0), ("c", 1))
        table.claim(3)
        assert [name for name in "abc" if not table.present(name)] == gone


def test_without_caching_nothing_outlasts_the_use_of_another_model() -> None:
    table = table_of(100, "none", a=[1, 1], b=[1])
    load(table, *all_of("a", 2))
    assert load(table, ("b", 0)) == all_of("a", 2)


def test_misuse_is_told_with_the_layer() -> None:
    table = table_of(4, a=[2, 2])
    for act in (lambda: table.pin([("a", 1)]), lambda: table.unpin([("a", 1)]), lambda: table.pin_whole("a")):
        with pytest.raises(InvariantError, match="'a'"):
            act()
    with pytest.raises(ValueError, match="registered"):
        table.add("a", [1])
    with pytest.raises(ValueError, match="0 or more"):
        LayerTable(-1)


class Machine(RuleBasedStateMachine):
    """Use a table in every order; the laws are invariants and checks in the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.table: LayerTable | None = None
        self.sizes: dict[str, list[int]] = {}
        self.pinned: list[list[LayerKey]] = []
        self.loading: list[Reservation] = []
        self.held: set[LayerKey] = set()

    @precondition(lambda self: self.table is None)
    @rule(data=st.data(), policy=st.sampled_from(POLICIES), budget_bytes=st.integers(0, 30))
    def begin(self, data: st.DataObject, policy: PolicyName, budget_bytes: int) -> None:
        self.table = LayerTable(budget_bytes, policy)
        for name in "abc":
            self.sizes[name] = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
            self.table.add(
                name, self.sizes[name], data.draw(st.sampled_from("xy")), data.draw(st.integers(0, 5))
            )
        self.held = {(name, at) for name in "abc" for at, size in enumerate(self.sizes[name]) if not size}

    def draw_keys(self, data: st.DataObject) -> list[LayerKey]:
        name = data.draw(st.sampled_from("abc"))
        layers = data.draw(st.sets(st.integers(0, len(self.sizes[name]) - 1), min_size=1, max_size=3))
        return [(name, layer) for layer in sorted(layers)]

    def gone(self, keys: list[LayerKey] | tuple[LayerKey, ...]) -> None:
        used = {key for each in self.pinned for key in each} | {key for r in self.loading for key in r.keys}
        assert not used & set(keys), "no layer is freed while it is used or loaded"
        assert set(keys) <= self.held
        self.held -= set(keys)

    @precondition(lambda self: self.table is not None)
    @rule(data=st.data(), is_urgent=st.booleans())
    def reserve(self, data: st.DataObject, is_urgent: bool) -> None:
        assert self.table is not None
        keys = self.draw_keys(data)
        if {key for each in self.loading for key in each.missing} & set(keys):
            return
        size_bytes = sum(self.sizes[name][layer] for name, layer in keys)
        try:
            reservation = self.table.reserve(keys, is_urgent)
        except CapacityError:
            assert size_bytes > self.table.limit_bytes
            return
        if reservation is None:
            assert not (is_urgent and self.table.is_idle()), "space only lacks while something is in use"
            assert self.table.is_idle() == (not self.pinned and not self.loading)
            return
        self.gone(reservation.evicted)
        self.loading.append(reservation)

    @precondition(lambda self: self.loading)
    @rule(is_good=st.booleans())
    def end_load(self, is_good: bool) -> None:
        assert self.table is not None
        reservation = self.loading.pop()
        if is_good:
            self.table.loaded(reservation)
            self.held |= set(reservation.missing)
        else:
            self.table.failed(reservation)
        self.gone(self.table.trim())

    @precondition(lambda self: self.table is not None)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        assert self.table is not None
        keys = self.draw_keys(data)
        if self.table.are_resident(keys):
            self.table.pin(keys)
            self.table.touch(keys[0][0])
            self.pinned.append(keys)

    @precondition(lambda self: self.pinned)
    @rule()
    def let_go(self) -> None:
        assert self.table is not None
        self.table.unpin(self.pinned.pop())
        self.gone(self.table.trim())

    @precondition(lambda self: self.table is not None)
    @rule(claimed_bytes=st.integers(0, 40))
    def claim(self, claimed_bytes: int) -> None:
        assert self.table is not None
        self.gone(self.table.claim(claimed_bytes))

    @invariant()
    def the_account_adds_up_and_the_budget_holds(self) -> None:
        if self.table is None:
            return
        self.table.validate()
        used = {key for each in self.pinned for key in each} | {key for r in self.loading for key in r.keys}
        used_bytes = sum(self.sizes[name][layer] for name, layer in used)
        assert self.table.total_bytes <= self.table.budget_bytes
        if self.table.policy == "layers":
            assert self.table.total_bytes <= max(self.table.limit_bytes, used_bytes)
        assert {(name, at) for name in "abc" for at in self.table.present(name)} == {
            (name, at) for name, at in self.held if self.sizes[name][at]
        }


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(9, 40))
def test_a_model_larger_than_memory_still_runs_layer_by_layer(
    sizes_bytes: list[int], budget_bytes: int
) -> None:
    table = table_of(budget_bytes, m=sizes_bytes)
    for _ in range(2):
        table.want(all_of("m", len(sizes_bytes)))
        for layer in range(len(sizes_bytes)):
            key = ("m", layer)
            if not table.are_resident([key]):
                load(table, key, is_urgent=True)
            table.pin([key])
            table.want([key], by=-1)
            table.unpin([key])
            assert table.total_bytes <= budget_bytes
