"""Flags have ComfyUI's names, and wrong ones end the start with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless import cli
from comfyserverless.control.files import demo_models_folder
from comfyserverless.core.config import ServerConfig
from comfyserverless.core.errors import ConfigError


def config(*flags: str) -> ServerConfig:
    argv = ["serve", *flags]
    return cli.server_config(cli.parser().parse_args(argv), argv)


def test_defaults_are_those_of_comfyui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    default = config()
    assert (default.listen, default.port, default.cors_origin) == (("127.0.0.1",), 8188, None)
    assert default.max_upload_bytes == 100 * 1024 * 1024
    assert default.argv == ("comfyserverless", "serve")
    folders = default.engine.folders
    assert (folders.base, folders.output, folders.temp) == (tmp_path, tmp_path / "output", tmp_path / "temp")
    assert folders.models[-1] == demo_models_folder()
    assert default.engine.cache == "classic"


def test_flags_reach_the_configuration(tmp_path: Path) -> None:
    made = config(
        "--listen",
        "127.0.0.1,::1",
        "--port",
        "0",
        "--enable-cors-header",
        "--max-upload-size",
        "0.5",
        "--enable-compress-response-body",
        "--base-directory",
        str(tmp_path),
        "--temp-directory",
        str(tmp_path / "t"),
        "--preview-method",
        "auto",
        "--preview-size",
        "300",
        "--cache-lru",
        "7",
        "--disable-metadata",
        "--workers",
        "3",
        "--threads",
        "2",
    )
    assert (made.listen, made.port, made.cors_origin) == (("127.0.0.1", "::1"), 0, "*")
    assert (made.max_upload_bytes, made.compress) == (512 * 1024, True)
    assert made.engine.folders.temp == tmp_path / "t/temp"
    assert (made.engine.preview_method, made.engine.preview_px, made.engine.embeds_metadata) == (
        "auto",
        300,
        False,
    )
    assert (made.engine.cache, made.engine.cache_lru_entries) == ("lru", 7)
    assert (made.engine.worker.workers, made.engine.worker.threads) == (3, 2)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("2G", 2 << 30), ("512m", 512 << 20), ("1.5GiB", 3 << 29), ("100 MB", 100 << 20), ("1T", 1 << 40)],
)
def test_arena_memory_is_a_size_with_its_unit(text: str, size_bytes: int) -> None:
    assert config("--arena-memory", text).engine.worker.arena_bytes == size_bytes


def test_arenas_are_shared_memory_of_a_share_of_the_machine_by_default() -> None:
    worker = config().engine.worker
    assert (worker.arena_bytes, worker.arena_kind) == (0, "shared")
    assert config("--arena", "nvshmem").engine.worker.arena_kind == "nvshmem"


def test_listen_without_a_value_means_everywhere() -> None:
    assert config("--listen").listen == ("0.0.0.0", "::")


def test_models_below_the_base_come_before_the_demo(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    models = config("--base-directory", str(tmp_path)).engine.folders.models
    assert models == (tmp_path / "models", demo_models_folder())


def test_given_models_folders_replace_the_default_one(tmp_path: Path) -> None:
    for name in ("a", "b", "models"):
        (tmp_path / name).mkdir()
    flags = ("--models-dir", str(tmp_path / "a"), "--models-directory", str(tmp_path / "b"))
    models = config("--base-directory", str(tmp_path), *flags).engine.folders.models
    assert models == (tmp_path / "a", tmp_path / "b", demo_models_folder())


def test_missing_models_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--models-dir .*nope"):
        config("--models-dir", str(tmp_path / "nope"))


def test_memory_for_weights_reaches_the_workers(tmp_path: Path) -> None:
    flags = ("--device-memory", "1.5G", "--host-memory", "512M", "--resident", "models")
    worker = config("--base-directory", str(tmp_path), *flags).engine.worker
    assert (worker.device_bytes, worker.host_bytes, worker.resident) == (3 << 29, 512 << 20, "models")
    assert worker.profiles == tmp_path / "user" / "__profiles"


def test_records_lie_in_the_user_folder_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = config()
    assert (made.engine.database, made.engine.history_limit, made.engine.history_days) == ("", 10_000, 0)
    made = config(
        "--database", "here.db", "--history-limit", "7", "--history-days", "1.5", "--drain-timeout", "0"
    )
    assert made.engine.database == str(tmp_path / "here.db")
    assert (made.engine.history_limit, made.engine.history_days, made.drain_s) == (7, 1.5, 0)
    assert config("--database", "memory").engine.database == "memory"
    with pytest.raises(ConfigError, match=r"--database mysql://\.\.\.: only files, `memory` and postgresql://"):
        config("--database", "mysql://root:secret@h/d")


@pytest.mark.parametrize("flags", [("--database", "{}"), ("--database={}",)])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_password_of_a_database_is_in_nothing_that_is_shown(flags: tuple[str, ...], scheme: str) -> None:
    address = f"{scheme}://me:secret@host/records"
    made = config(*(flag.format(address) for flag in flags))
    assert made.engine.database == address
    assert "secret" not in repr(made)
    assert f"{scheme}://..." in " ".join(made.argv)


@pytest.mark.parametrize(("flags", "steps"), [((), None), (("auto",), None), (("0",), 0), (("7",), 7)])
def test_checkpoints_are_as_often_as_asked_for(flags: tuple[str, ...], steps: int | None) -> None:
    made = config(*(("--checkpoint-steps", *flags) if flags else ()))
    assert made.engine.checkpoint_steps == steps


def test_sharing_is_by_vtime_with_some_slack_unless_told_otherwise() -> None:
    made = config().engine
    assert (made.policy, made.slack_s) == ("vtime", 2.0)
    made = config("--policy", "round-robin", "--slack", "0.25").engine
    assert (made.policy, made.slack_s) == ("round-robin", 0.25)


def test_token_of_the_metrics_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    made = config("--metrics-token-file", str(tmp_path / "token"))
    assert made.metrics_token == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(made)
    assert config().metrics_token == ""


def test_lines_of_the_log_are_of_the_kind_and_level_that_is_asked_for() -> None:
    worker = config("--log-format", "json", "--verbose").engine.worker
    assert (worker.log_format, worker.log_level) == ("json", "DEBUG")
    assert config().engine.worker.log_format == "text"


def test_problem_is_one_line_without_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--models-dir", "/no/such/folder"]) == 2
    assert capsys.readouterr().err == (
        "comfyserverless: --models-dir /no/such/folder: there is no such folder\n"
    )


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--lowvramm"], "--lowvramm"),
        (["--por", "1"], "--por"),
        (["--port", "99999"], "99999"),
        (["--port", "x"], "--port"),
        (["--workers", "-1"], "--workers"),
        (["--workers", "1000000000"], "--workers"),
        (["--threads", "1e9"], "--threads"),
        (["--max-upload-size", "0"], "--max-upload-size"),
        (["--max-upload-size", "nan"], "--max-upload-size"),
        (["--preview-method", "movie"], "--preview-method"),
        (["--preview-size", "0"], "--preview-size"),
        (["--preview-size", "1e9"], "--preview-size"),
        (["--cache-none", "--cache-classic"], "--cache-classic"),
        (["--verbose", "loud"], "--verbose"),
        (["--log-format", "xml"], "--log-format"),
        (["--metrics-token-file", "/no/such/file"], "/no/such/file cannot be read"),
        (["--metrics-token-file", "/dev/null"], "/dev/null holds no token"),
        (["--history-limit", "1.5"], "--history-limit"),
        (["--drain-timeout", "-1"], "--drain-timeout"),
        (["--arena-memory", "2"], "'2' is no size; write it like 512M or 2G"),
        (["--arena-memory", "-2G"], "--arena-memory"),
        (["--arena-memory", "much"], "'much' is no size"),
        (["--arena-memory", "1M"], "1M is less than 64M"),
        (["--arena", "disk"], "--arena"),
        (["--device-memory", "8"], "'8' is no size; write it like 512M or 2G"),
        (["--host-memory", "some"], "--host-memory"),
        (["--resident", "all"], "--resident"),
        (["--slack", "-1"], "-1 is less than 0, or not finite"),
        (["--slack", "nan"], "--slack"),
        (["--policy", "lottery"], "'vtime', 'fifo', 'sjf', 'round-robin', 'request-count'"),
    ],
)
def test_wrong_flag_ends_the_start_and_is_named(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *flags])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_unknown_flag_is_told_where_the_known_ones_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--lowvram", "--port", "1"])
    assert capsys.readouterr().err == (
        "comfyserverless serve: unknown arguments: --lowvram\n"
        "`comfyserverless serve --help` lists what there is\n"
    )


def test_interrupt_while_starting_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: object, _argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "serve", ("serve", cli.COMMANDS["serve"][1], interrupted))
    assert cli.main(["serve"]) == 130
    assert capsys.readouterr().err == ""


def test_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([])
    assert "serve" in capsys.readouterr().err


def test_packs_see_the_flags_that_comfyui_has_and_no_other(tmp_path: Path) -> None:
    made = config(
        "--base-directory", str(tmp_path), "--preview-method", "auto", "--database", "postgresql://u:p@h/n"
    )
    seen = made.engine.pack_flags
    assert (seen["base_directory"], seen["preview_method"], seen["cache_lru"]) == (str(tmp_path), "auto", 0)
    assert seen["disable_metadata"] is False
    assert seen["preview_size"] == 512
    assert "output_directory" not in seen
    assert "u:p" not in str(seen)


@pytest.mark.parametrize(
    ("flags", "loads", "names"),
    [
        ((), True, None),
        (("--whitelist-custom-nodes", "a"), True, None),
        (("--disable-all-custom-nodes",), False, ()),
        (("--disable-all-custom-nodes", "--whitelist-custom-nodes", "a", "b"), True, ("a", "b")),
    ],
)
def test_packs_are_loaded_as_comfyui_would(
    flags: tuple[str, ...], loads: bool, names: tuple[str, ...] | None
) -> None:
    engine = config(*flags).engine
    assert (engine.loads_packs, engine.pack_whitelist) == (loads, names)
