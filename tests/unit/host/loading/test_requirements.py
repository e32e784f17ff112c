"""What a pack wants of pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.host.loading.requirements import missing_requirements, package_of, pip_line


def test_only_what_is_not_installed_is_missing(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "# comment\n\nmsgspec\nmsgspec<0.1\nnot-there-at-all>=1  # why\n"
        "not-there-either; python_version < '3'\n"
        "--extra-index-url https://example.org\ngit+https://example.org/x\nnot-there-at-all>=1\n"
    )
    missing = missing_requirements(str(tmp_path))
    assert missing == ("msgspec<0.1", "not-there-at-all>=1")
    assert pip_line(missing) == 'pip install "msgspec<0.1" "not-there-at-all>=1"'


def test_pack_without_a_list_wants_nothing(tmp_path: Path) -> None:
    assert missing_requirements(str(tmp_path)) == ()


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2.ximgproc", "opencv-python-headless"),
        ("torchvision", "torchvision"),
        ("their_own_part", ""),
    ],
)
def test_module_that_is_well_known_names_its_package(module: str, package: str) -> None:
    assert package_of(ModuleNotFoundError(name=module)) == package
    assert package_of(ImportError(name=module)) == ""
