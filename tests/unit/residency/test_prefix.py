"""The shortest prefix that hides loading."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.residency.prefix import shortest_prefix, stall_s, uniform_prefix

_times_ns = st.integers(0, 1000)
_layers = st.lists(st.tuples(_times_ns, _times_ns), min_size=1, max_size=30)


@given(_layers)
def test_no_layer_waits_with_the_shortest_prefix_and_one_does_with_any_shorter(
    layers: list[tuple[int, int]],
) -> None:
    load_ns, compute_ns = [load for load, _ in layers], [compute for _, compute in layers]
    prefix = shortest_prefix(load_ns, compute_ns)
    assert stall_s(load_ns, compute_ns, prefix) == 0
    assert all(stall_s(load_ns, compute_ns, shorter) > 0 for shorter in range(prefix))


@given(st.integers(1, 80), st.integers(1, 1000), st.data())
def test_the_general_form_is_equation_2_for_equal_layers_that_load_slower_than_they_compute(
    layers: int, load_ns: int, data: st.DataObject
) -> None:
    compute_ns = data.draw(st.integers(0, load_ns))
    expected = uniform_prefix(layers, Fraction(load_ns), Fraction(compute_ns))
    assert shortest_prefix([load_ns] * layers, [compute_ns] * layers) == expected


@given(st.integers(1, 40), st.integers(1, 1000), st.data())
def test_equation_2_is_the_least_prefix_whose_end_to_end_time_is_compute_alone(
    layers: int, load_ns: int, data: st.DataObject
) -> None:
    compute_ns = data.draw(st.integers(0, load_ns))

    def end_to_end_ns(prefix: int) -> int:
        """Evaluate the paper's Eq. 1."""
        return max(layers * compute_ns, (layers - prefix) * load_ns + compute_ns)

    prefix = uniform_prefix(layers, Fraction(load_ns), Fraction(compute_ns))
    assert end_to_end_ns(prefix) == layers * compute_ns
    assert all(end_to_end_ns(shorter) > layers * compute_ns for shorter in range(prefix))


def test_layers_that_load_faster_than_they_compute_need_the_first_one_only() -> None:
    assert shortest_prefix([1.0] * 10, [2.0] * 10) == 1
    with pytest.raises(ValueError, match=r"Eq\. 2 needs"):
        uniform_prefix(10, 1.0, 2.0)


def test_layers_without_bytes_need_no_prefix() -> None:
    assert shortest_prefix([0.0, 0.0], [1.0, 1.0]) == 0


def test_layers_without_compute_hide_nothing() -> None:
    assert shortest_prefix([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]) == 3


def test_a_heavy_last_layer_lengthens_the_prefix_less_than_its_share_of_bytes() -> None:
    # Needed at 3; loading layers 1..3 takes 1 + 1 + 3.
    assert shortest_prefix([1.0, 1.0, 1.0, 3.0], [1.0] * 4) == 3
    assert shortest_prefix([1.0, 1.0, 1.0, 1.0], [1.0] * 4) == 1


def test_a_model_without_layers_has_an_empty_prefix() -> None:
    assert shortest_prefix([], []) == 0


def test_bad_profiles_are_refused() -> None:
    with pytest.raises(ValueError, match="2 load times for 1 layers"):
        shortest_prefix([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="0 or more"):
        shortest_prefix([1.0], [-1.0])


def test_flux_schnell_keeps_most_of_its_layers_when_loading_is_naive() -> None:
    # 57 equal layers, 2.74 s from host and 0.224 s of compute in all (public DiFlow figures).
    prefix = uniform_prefix(57, 2.74 / 57, 0.224 / 57)
    assert prefix == 53
    assert stall_s([2.74 / 57] * 57, [0.224 / 57] * 57, prefix) == pytest.approx(0.0, abs=1e-9)
