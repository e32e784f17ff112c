"""The order in which layers leave."""

from __future__ import annotations

from comfyserverless.residency.policy import Candidate, PolicyName, eviction_order, rank_layers


def candidate(
    name: str, count: int = 4, prefix: int = 0, is_active: bool = False, group: str = ""
) -> Candidate:
    return Candidate(name, group or name, range(count), rank_layers([1] * count, prefix), is_active)


def order(policy: PolicyName, *candidates: Candidate) -> list[str]:
    units = eviction_order(policy, candidates)
    return ["+".join(f"{model}{layer}" for model, layer in unit) for unit in units]


def test_the_least_recently_used_model_goes_first_and_its_last_layer_first() -> None:
    assert order("layers", candidate("a", 2), candidate("b", 2)) == ["a1", "a0", "b1", "b0"]


def test_prefixes_go_last_of_every_model_a_slice_at_a_time() -> None:
    got = order("layers", candidate("a", 6, prefix=4), candidate("b", 6, prefix=4))
    assert got == ["a5", "a4", "b5", "b4", "a3", "b3", "a2", "b2", "a1", "b1", "a0", "b0"]


def test_a_model_in_use_goes_after_all_others() -> None:
    assert order("layers", candidate("a", 1, is_active=True), candidate("b", 2, prefix=2)) == ["b1", "b0", "a0"]


def test_whole_models_go_as_one() -> None:
    assert order("models", candidate("a", 2), candidate("b", 0), candidate("c", 1)) == ["a0+a1", "c0"]


def test_a_workflow_goes_when_none_of_its_models_was_used_for_longest() -> None:
    models = candidate("a", 1, group="x"), candidate("b", 1, group="y"), candidate("c", 1, group="x")
    assert order("workflows", *models) == ["b0", "c0+a0"]


def test_slices_of_a_prefix_are_by_bytes_so_a_large_first_layer_stays_to_the_end() -> None:
    assert rank_layers([60, 1, 1, 18, 20, 5], 5) == [0, 9, 9, 9, 12, 16]
    assert rank_layers([0, 0], 2) == [0, 0]
    assert rank_layers([3, 3], 9) == [0, 8]
