"""Labels have few values, whoever comes."""

from __future__ import annotations

from comfyserverless.control.metrics.labels import OTHER, TenantLabels, function_label
from comfyserverless.core.ids import TenantId

ALICE, BOB, CAROL = TenantId("alice"), TenantId("bob"), TenantId("carol")


def test_first_tenants_are_named_and_all_others_are_one() -> None:
    labels = TenantLabels(lambda: [ALICE, BOB, CAROL], most=2)
    assert [labels.of(each) for each in (CAROL, BOB, ALICE, CAROL)] == ["carol", "bob", OTHER, "carol"]


def test_a_name_that_is_no_tenants_gets_no_label() -> None:
    known = [ALICE]
    labels = TenantLabels(lambda: known)
    assert labels.of(TenantId("x" * 1000)) == OTHER
    assert labels.of(BOB) == OTHER
    known.append(BOB)
    assert labels.of(BOB) == "bob"
    known.remove(BOB)
    assert labels.of(BOB) == "bob"  # its figures stay where they are


def test_only_functions_of_the_product_have_labels() -> None:
    assert function_label("denoise.step") == "denoise.step"
    assert function_label("from.somewhere") == OTHER
