"""Sum up recorded cases by feature and family of models."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.parity import workflow_of

CASE_TEST = "test_case_equals_the_recorded_result["
FAMILIES = ("sdxl", "sd15", "sd2", "sd35", "flux2", "flux", "z_image", "qwen_image")
NO_FAMILY = "any"
"""Of cases without a model of a family: what they show is the same for all."""


def feature_of(case: str) -> str:
    """Return what a case is about: the first word of its name."""
    return case.partition("_")[0]


def family_of(case: str, workflow: Mapping[str, Any]) -> str:
    """Return the family that a case's name or the names of its model files tell, NO_FAMILY if none."""
    files = " ".join(re.findall(r'"([^"]+\.(?:safetensors|pth|ckpt))"', json.dumps(workflow)))
    for text in (case, files):
        for family in FAMILIES:
            if re.search(rf"(?<![a-z0-9]){family}(?![a-z0-9])", text):
                return family
    return NO_FAMILY


def case_of(nodeid: str) -> str | None:
    """Return the case that a test ran, None for other tests."""
    _, found, rest = nodeid.partition(CASE_TEST)
    return rest.removesuffix("]") if found else None


def outcomes_of(stats: Mapping[str, list[Any]]) -> dict[str, bool]:
    """Return whether each case that ran passed; stats: reports by outcome, as pytest's terminal has them."""
    outcomes: dict[str, bool] = {}
    for outcome in ("passed", "failed", "error"):
        for report in stats.get(outcome, ()):
            case = case_of(getattr(report, "nodeid", ""))
            if case is not None:
                outcomes[case] = outcomes.get(case, True) and outcome == "passed"
    return outcomes


def table(outcomes: Mapping[str, bool]) -> Iterator[str]:
    """Yield the lines of a table of features by families: passed / all, and their sums."""
    places = {case: (feature_of(case), family_of(case, workflow_of(case))) for case in outcomes}
    every, passed = Counter(places.values()), Counter(places[case] for case, good in outcomes.items() if good)
    families = sorted({family for _, family in every}, key=(*FAMILIES, NO_FAMILY).index)
    features = sorted({feature for feature, _ in every})
    yield _line("feature", [*families, "all"])
    for feature in features:
        row = [(passed[feature, family], every[feature, family]) for family in families]
        yield _line(feature, [_share(*pair) for pair in [*row, _sum(row)]])
    columns = [[(passed[f, family], every[f, family]) for f in features] for family in families]
    sums = [_sum(column) for column in columns]
    yield _line("all", [_share(*pair) for pair in [*sums, _sum(sums)]])


def _sum(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(good for good, _ in pairs), sum(count for _, count in pairs)


def _share(passed: int, every: int) -> str:
    return f"{passed} / {every}" if every else ""


def _line(head: str, cells: list[str]) -> str:
    return (f"{head:12}" + "".join(f"{cell:>12}" for cell in cells)).rstrip()
