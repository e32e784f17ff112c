"""Check the flags of the evaluation, before anything is started."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from comfyserverless.core.errors import ConfigError
from comfyserverless.demo.places import DEMO_CHECKPOINT
from comfyserverless.training.evaluation import add_evaluate_flags, run_evaluate


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_evaluate_flags(parser)
    return parser.parse_args(argv)


def test_demo_model_is_judged_by_default() -> None:
    assert parse().checkpoint == DEMO_CHECKPOINT


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--prompts", "0"), "--prompts 0"),
        (("--seed", "-1"), "--seed -1"),
        (("--sheet", "sheet.jpg"), "--sheet sheet.jpg"),
        (("--sheet", "nowhere/sheet.png"), "nowhere"),
        (("--sheet", "folder.png"), "--sheet folder.png"),
        (("--models-dir", "nowhere"), "--models-dir nowhere"),
        (("--server", "127.0.0.1:1"), "--server 127.0.0.1:1"),
        (("--server", "http://127.0.0.1:1", "--prompts", "1"), "--server http://127.0.0.1:1"),
    ],
    ids=str,
)
def test_bad_flag_is_named(
    argv: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigError, match=named):
        run_evaluate(parse(*argv), argv)
