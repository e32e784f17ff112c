"""What a node host's process finds around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from comfyserverless.core.hosting import HostPlan, HostSettings
from comfyserverless.host.process import MODULES, allow_downloads, prepare_imports


def test_modules_of_packs_come_first_and_the_base_folder_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])
    monkeypatch.setattr(sys, "argv", ["x", "--secret"])
    base = tmp_path / "base"
    prepare_imports(HostPlan(HostSettings(str(base), str(base), argv=("comfyserverless", "--port"))))
    assert sys.path[0] == str(MODULES)
    assert sys.path[-1] == str(base)
    assert not {str(tmp_path), ""} & set(sys.path)
    assert sys.argv == ["comfyserverless"]


def test_packs_may_download_what_our_own_model_code_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = ModuleType("huggingface_hub.constants")
    constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    allow_downloads()
    assert constants.HF_HUB_OFFLINE is False
    assert not {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & os.environ.keys()
