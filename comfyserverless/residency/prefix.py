"""Find how many first layers of a model must stay resident to hide loading of the rest (paper, section 5.1).

Model of one run over L layers, of which the first P are resident. Loads are sequential on one channel, from
layer P on, and start together with the run; computes are sequential; a layer computes when it is loaded and
the layer before it is done. Loading is *hidden* if no layer ever waits, that is, for every layer j >= P its
load ends no later than its compute begins in a run in which nothing waits:

    load(P) + ... + load(j) <= compute(0) + ... + compute(j - 1)

`shortest_prefix` is the smallest such P for any times. For equal layers with T_load >= T_comp the last
layer is the tightest one, (L - P) T_load <= (L - 1) T_comp, which is the paper's condition that the second
term of Eq. 1, (L - P) T_load + T_comp, does not exceed the first, L T_comp: there the general form equals
Eq. 2 exactly. For T_load < T_comp the first missing layer is the tightest; Eq. 2 looks at the last one only
and may answer less than 1, with which layer 0 itself would wait. `uniform_prefix` refuses that case.

Times are exact if they are given as integers (nanoseconds) or fractions; floats carry their rounding into ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

Seconds = float | Fraction


def shortest_prefix(load_s: Sequence[Seconds], compute_s: Sequence[Seconds]) -> int:
    """Return the smallest number of resident first layers with which no layer ever waits for its load.

    load_s, compute_s: seconds per layer, in execution order, equally long; a layer without bytes has load 0.
    Returns 0 .. L. Raises ValueError for lists of different lengths or a negative time.
    """
    if len(load_s) != len(compute_s):
        raise ValueError(f"{len(load_s)} load times for {len(compute_s)} layers")
    if any(time_s < 0 for time_s in (*load_s, *compute_s)):
        raise ValueError("layer times are 0 or more")
    begins_s: list[Seconds] = [0]
    loaded_s: list[Seconds] = [0]
    for load, compute in zip(load_s, compute_s, strict=True):
        begins_s.append(begins_s[-1] + compute)
        loaded_s.append(loaded_s[-1] + load)
    # With prefix P, layer j is there at loaded[j + 1] - loaded[P] and needed at begins[j]. More prefix never
    # hurts, so walk back from all layers for as long as the worst of the layers from P on still fits.
    prefix = len(load_s)
    excess_s: Seconds | None = None
    for layer in reversed(range(len(load_s))):
        late_s = loaded_s[layer + 1] - begins_s[layer]
        excess_s = late_s if excess_s is None else max(excess_s, late_s)
        if excess_s > loaded_s[layer]:
            break
        prefix = layer
    return prefix


def uniform_prefix(layers: int, load_s: Seconds, compute_s: Seconds) -> int:
    """Return the paper's Eq. 2, ceil((L (T_load - T_comp) + T_comp) / T_load), for equal layers.

    Raises ValueError unless layers >= 1 and 0 <= compute_s <= load_s with load_s above 0: it holds only there.
    """
    if layers < 1 or not 0 <= compute_s <= load_s or load_s == 0:
        raise ValueError(
            f"Eq. 2 needs 1 or more layers and 0 <= compute {compute_s} <= load {load_s}, load above 0"
        )
    return ceil((layers * (load_s - compute_s) + compute_s) / load_s)


def stall_s(load_s: Sequence[Seconds], compute_s: Sequence[Seconds], prefix: int) -> Seconds:
    """Return how long a run with this prefix waits for loads in all, by walking it layer by layer."""
    now_s: Seconds = 0
    loaded_s: Seconds = 0
    waited_s: Seconds = 0
    for layer, (load, compute) in enumerate(zip(load_s, compute_s, strict=True)):
        if layer >= prefix:
            loaded_s += load
            if loaded_s > now_s:
                waited_s += loaded_s - now_s
                now_s = loaded_s
        now_s += compute
    return waited_s
