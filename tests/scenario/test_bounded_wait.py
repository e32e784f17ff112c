"""Nobody waits without end: not for others' weights that are in place, not for one's own shorter runs.

By the pair's bound (`test_fairness_law`), a tenant that waits for a slot sees each other tenant get at most
2 (S + L) seconds of service meanwhile, with S the slack and L the largest charge. So with n others on k slots
its next invocation starts within n 2 (S + L) / k + L seconds, whatever weights are in place where.
"""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyserverless.core.ids import InvocationId
from comfyserverless.scheduling.instructions import StartInvocation
from comfyserverless.scheduling.policies.vtime import PATIENT_TURNS
from tests.support.scheduling import Story
from tests.support.scheduling_world import World, WorldPlan

LOAD_S = 3.0
_patient = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class HotStreams:
    """Let tenants keep slots busy with one model, which is in place; a victim comes with another one."""

    def __init__(self, random: Random, tenants: int, slots: int, slack_s: float) -> None:
        self.story = Story(slack_s=slack_s, default_load_s=LOAD_S, default_cost_s=1.0)
        self._random = random
        self._tenants = [f"t{index}" for index in range(tenants)]
        self._ends: list[tuple[float, str, float]] = []
        self._counts: Counter[str] = Counter()
        self._started_at_s: dict[str, float] = {}
        for slot in range(slots):
            self.story.join(f"w{slot}")

    def victim_waits_s(self, arrives_s: float) -> float:
        """Play until the victim starts; returns how long that took."""
        for tenant in self._tenants:
            for _ in range(len(self.story.state.pool.workers) + 3):
                self._submit(tenant)
        while self.story.now_s < arrives_s:
            self._finish_next()
        self._take(self.story.submit("victim", run="v", tenant="victim", weights=("cold",), key="cold"))
        while "victim" not in self._started_at_s:
            self._finish_next()
        return self._started_at_s["victim"] - self._arrived_s()

    def _arrived_s(self) -> float:
        return self.story.state.table.records[InvocationId("victim")].ready_at_s

    def _submit(self, tenant: str) -> None:
        self._counts[tenant] += 1
        name = f"{tenant}.{self._counts[tenant]}"
        self._take(self.story.submit(name, run=tenant, tenant=tenant, weights=("hot",)))

    def _take(self, out: list[object]) -> None:
        for each in out:
            if isinstance(each, StartInvocation):
                self._started_at_s[each.invocation] = self.story.now_s
                cost_s = self._random.uniform(0.1, 1.0)
                heapq.heappush(self._ends, (self.story.now_s + cost_s, each.invocation, cost_s))

    def _finish_next(self) -> None:
        self.story.now_s, name, cost_s = heapq.heappop(self._ends)
        self._take(self.story.finish(name, cost_s))
        self.story.unpin(name)
        self._submit(name.split(".")[0])


@_patient
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from((0.0, 0.5, 2.0)),
    st.floats(0.0, 20.0),
)
def test_cold_model_waits_for_a_bounded_time_however_busy_a_hot_one_is(
    seed: int, others: int, slots: int, slack_s: float, arrives_s: float
) -> None:
    waited_s = HotStreams(Random(seed), others, slots, slack_s).victim_waits_s(arrives_s)
    largest_s = 1.0 + LOAD_S  # the first calls are charged by default estimates
    assert waited_s <= others * 2 * (slack_s + slots * largest_s) / slots + largest_s


def test_long_run_of_a_tenant_goes_on_however_many_short_ones_pass_it() -> None:
    story = Story()
    story.submit("warm.long", key="long")
    story.submit("warm.short", key="short")
    story.join()
    story.finish("warm.long", 9.0)
    story.finish("warm.short", 0.1)
    story.chain("long.0", "long.1", "long.2", run="long", key="long")
    turns: list[str] = []
    running = story.submit("s0", run="s0", key="short")
    name = "long.0"
    for index in range(1, 40):
        story.now_s += 1.0
        story.submit(f"s{index}", run=f"s{index}", key="short")
        out = story.finish(name, 9.0 if name.startswith("long") else 0.1)
        (name,) = [str(each.invocation) for each in out if isinstance(each, StartInvocation)]
        turns.append(name)
    assert running == []
    assert "long.2" in turns
    assert turns.index("long.2") <= 2 * PATIENT_TURNS


@settings(_patient, max_examples=10)
@given(
    st.builds(
        WorldPlan,
        seed=st.integers(0, 2**32 - 1),
        tenants=st.just(1),
        runs=st.integers(20, 60),
        run_size=st.integers(1, 6),
        workers=st.just(1),
        slack_s=st.sampled_from((0.0, 1.0)),
    )
)
def test_later_work_of_a_tenant_passes_what_is_ready_a_bounded_number_of_times(plan: WorldPlan) -> None:
    world = World(plan)
    passed: Counter[InvocationId] = Counter()
    earlier: Counter[InvocationId] = Counter()
    start = world._start

    def count(instruction: StartInvocation) -> None:
        started = world.state.table.records[instruction.invocation]
        lane = world.state.table.backlog.lanes[started.spec.lane]
        for rank in lane.get(started.spec.tenant, ()):
            waiting = world.state.table.backlog._records[rank]
            tally = passed if waiting.order < started.order else earlier
            tally[waiting.spec.id] += 1
        start(instruction)

    world._start = count  # type: ignore[method-assign]
    world.play()
    for invocation, times in passed.items():
        assert times <= (PATIENT_TURNS - 1) * (earlier[invocation] + 1)
