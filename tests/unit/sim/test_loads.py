"""What simulated tenants send."""

from __future__ import annotations

from random import Random

import pytest

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId
from comfyserverless.sim.loads import TenantLoad, many_tenants, two_backlogged
from comfyserverless.sim.prompts import PromptShape

SHAPE = PromptShape(1, 8)


def test_a_backlog_is_there_from_the_beginning() -> None:
    load = TenantLoad(TenantId("a"), SHAPE, outstanding=3)
    assert list(load.arrivals_s(Random(0), 10.0)) == [0.0, 0.0, 0.0]


def test_a_given_trace_is_played_as_it_is() -> None:
    load = TenantLoad(TenantId("a"), SHAPE, sent_at_s=(0.5, 7.0))
    assert list(load.arrivals_s(Random(0), 10.0)) == [0.5, 7.0]


def test_random_arrivals_come_as_often_as_asked_for() -> None:
    load = TenantLoad(TenantId("a"), SHAPE, rate_per_s=2.0)
    arrivals_s = list(load.arrivals_s(Random(0), 500.0))
    assert arrivals_s == sorted(arrivals_s)
    assert 900 < len(arrivals_s) < 1100


@pytest.mark.parametrize(("outstanding", "rate_per_s"), [(0, 0.0), (2, 1.0)])
def test_a_load_is_one_or_the_other(outstanding: int, rate_per_s: float) -> None:
    with pytest.raises(ConfigError, match="give one of `outstanding`"):
        TenantLoad(TenantId("a"), SHAPE, outstanding=outstanding, rate_per_s=rate_per_s)


def test_tenants_of_one_seed_are_the_same_and_of_another_are_not() -> None:
    assert many_tenants(5, 1) == many_tenants(5, 1)
    assert many_tenants(5, 1) != many_tenants(5, 2)
    assert {load.rate_per_s for load in many_tenants(3, 1, rate_per_s=0.5)} == {0.5}


def test_the_two_of_the_bench_are_as_uneven_as_said() -> None:
    heavy, light = two_backlogged()
    assert heavy.shape.images * heavy.shape.steps == 40 * light.shape.images * light.shape.steps
    assert heavy.shape.service_s() > 5 * light.shape.service_s()
