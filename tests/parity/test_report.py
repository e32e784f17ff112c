"""The table at the end of a run of recorded cases."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.parity import case_names, workflow_of
from tests.support.parity_report import NO_FAMILY, family_of, outcomes_of, table


@dataclass(frozen=True)
class Report:
    nodeid: str


def test_table_counts_what_passed_of_what_ran_by_feature_and_family() -> None:
    outcomes = {"cn_sd15_full": True, "cn_sd15_end_03": False, "cn_sdxl_full": True, "image_invert": True}
    assert list(table(outcomes)) == [
        "feature             sdxl        sd15         any         all",
        "cn                 1 / 1       1 / 2                   2 / 3",
        "image                                      1 / 1       1 / 1",
        "all                1 / 1       1 / 2       1 / 1       3 / 4",
    ]


def test_case_with_an_error_in_any_phase_has_not_passed() -> None:
    name = "tests/parity/test_cases.py::test_case_equals_the_recorded_result"
    stats = {
        "passed": [Report(f"{name}[one]"), Report(f"{name}[two]"), Report("tests/unit/test_x.py::test_y")],
        "error": [Report(f"{name}[two]")],
        "failed": [Report(f"{name}[three]")],
        "": [Report(f"{name}[one]")],
    }
    assert outcomes_of(stats) == {"one": True, "two": False, "three": False}


def test_family_of_a_case_is_told_by_its_name_or_its_files() -> None:
    assert family_of("scheduler_sd15_beta", {}) == "sd15"
    assert family_of("i2i", {"1": {"inputs": {"ckpt_name": "sdxl_tiny.safetensors"}}}) == "sdxl"
    assert family_of("image_invert", {"1": {"inputs": {"image": "sd15.png"}}}) == NO_FAMILY


def test_every_case_that_samples_has_a_family() -> None:
    sampling = [case for case in case_names() if "KSampler" in str(workflow_of(case))]
    assert sampling
    assert [case for case in sampling if family_of(case, workflow_of(case)) == NO_FAMILY] == []
