"""Read the command line; flags have ComfyUI's names where ComfyUI has them.

Unknown flags end the start and are named. This module imports nothing heavy: each command does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from comfyserverless import flag_values as values
from comfyserverless.core.config import EngineConfig, Folders, ServerConfig, WorkerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.residency.policy import POLICIES

_MIB = 1 << 20
PROFILES_FOLDER = "__profiles"
"""Below the user folder; names that begin so are no user's (as in ComfyUI)."""

_EVERY_ADDRESS = "0.0.0.0,::"
_ENDED_BY_SIGINT = 130
_ARENAS = ("shared", "nvshmem")
_PREVIEWS = {"none": "none", "auto": "latent2rgb", "latent2rgb": "latent2rgb"}
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

Arguments = argparse.Namespace


def _add_serve_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--listen",
        nargs="?",
        const=_EVERY_ADDRESS,
        default="127.0.0.1",
        metavar="IP[,IP]",
        help="addresses to listen on; without a value, all of them",
    )
    add("--port", type=values.port, default=8188, help="port to listen on; 0 takes a free one")
    add(
        "--enable-cors-header",
        nargs="?",
        const="*",
        metavar="ORIGIN",
        help="allow pages of this origin (without a value, any) to use the server; ends the origin check",
    )
    add("--max-upload-size", type=values.positive, default=100.0, metavar="MB", help="largest request body")
    add("--enable-compress-response-body", action="store_true", help="gzip JSON and text answers")
    _add_access_flags(parser)
    _add_folder_flags(parser)
    add("--preview-method", choices=sorted(_PREVIEWS), default="none", help="pictures while sampling")
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--cache-classic", action="store_true", help="keep results of the last prompt (default)")
    cache.add_argument("--cache-lru", type=values.count, metavar="N", help="keep the N last used node results")
    cache.add_argument("--cache-none", action="store_true", help="keep no node results")
    add("--disable-metadata", action="store_true", help="save pictures without the prompt and workflow")
    add("--disable-all-custom-nodes", action="store_true", help="load no custom node packs")
    add(
        "--workers",
        type=values.processes,
        default=0,
        metavar="N",
        help="worker processes; 0: one per GPU, or one",
    )
    add("--threads", type=values.processes, default=0, metavar="N", help="threads of each worker; 0: its share")
    add("--split-guidance", choices=("off", "on"), default="off", help=values.SPLIT_GUIDANCE)
    _add_arena_flags(parser)
    _add_weights_flags(parser)
    _add_recovery_flags(parser)
    _add_record_flags(parser)
    add(
        "--verbose",
        nargs="?",
        const="DEBUG",
        default="INFO",
        type=str.upper,
        choices=_LEVELS,
        metavar="LEVEL",
        help=f"what to log, one of {', '.join(_LEVELS)}",
    )


def _add_arena_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arena-memory",
        type=values.arena_bytes,
        default=0,
        metavar="SIZE",
        help="memory of each worker for results, like 512M or 2G (default: a share of the machine's)",
    )
    parser.add_argument(
        "--arena",
        choices=_ARENAS,
        default="shared",
        help="where results are kept: memory that workers share, or that of their GPUs (default: %(default)s)",
    )


def _add_recovery_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-steps",
        type=values.steps_or_auto,
        default=None,
        metavar="N",
        help="keep a copy of a picture in the making every N steps, for the death of its worker; 0: never,"
        " auto: as often as it costs a hundredth of the time (default)",
    )


def _add_weights_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--device-memory",
        type=values.size_bytes,
        default=0,
        metavar="SIZE",
        help="memory of each worker for weights where it computes, like 8G (default: a share of what there is)",
    )
    add(
        "--host-memory",
        type=values.size_bytes,
        default=0,
        metavar="SIZE",
        help="memory of each worker for weights that wait for the device (default: a share, with a GPU)",
    )
    add(
        "--resident",
        choices=POLICIES,
        default="layers",
        help="what leaves memory together when weights need room (default: %(default)s; others: to compare)",
    )


def _add_record_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--database",
        default="",
        metavar="FILE",
        help="where prompts and history are kept (default: records.sqlite3 in the user folder);"
        " `memory` keeps them until the server ends",
    )
    add(
        "--history-limit",
        type=values.count,
        default=10_000,
        metavar="N",
        help="ended prompts that are kept for each user (default: %(default)s)",
    )
    add(
        "--history-days",
        type=values.amount,
        default=0.0,
        metavar="DAYS",
        help="for how long ended prompts are kept (default: 0, at any age)",
    )
    add(
        "--drain-timeout",
        type=values.amount,
        default=5.0,
        metavar="S",
        help="how long running prompts may go on when the server is stopped (default: %(default)g s);"
        " what has not ended by then runs at the next start",
    )


def _add_access_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tenants", type=Path, metavar="FILE", help="accounts as TOML, instead of those of `tenant add`")
    add("--insecure", action="store_true", help="listen where other machines reach it without any accounts")

    add(
        "--multi-user",
        action="store_true",
        help="let people choose whose settings and workflows they see; no protection: accounts are",
    )
    add(
        "--webhook-allow",
        nargs="+",
        action="extend",
        default=[],
        metavar="HOST",
        help="hosts, addresses or networks (10.0.0.0/8) that webhooks may call although they are not public",
    )

def _add_folder_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--base-directory", type=Path, default=Path(), metavar="DIR", help="where the other folders lie")
    for name in ("output", "input", "temp", "user"):
        add(
            f"--{name}-directory", type=Path, metavar="DIR", help=f"the {name} folder (default: below the base)"
        )
    add(
        "--models-dir",
        "--models-directory",
        dest="models_dirs",
        type=Path,
        action="append",
        metavar="DIR",
        help="a models folder in ComfyUI's layout (default: models below the base); may be repeated",
    )
    add(
        "--extra-model-paths-config",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="extra_model_paths.yaml files",
    )


def server_config(arguments: Arguments, argv: Sequence[str]) -> ServerConfig:
    """Build the configuration from parsed flags. Raises ConfigError naming the flag that cannot work."""
    cache, entries = "classic", 0
    if arguments.cache_none:
        cache = "none"
    elif arguments.cache_lru:
        cache, entries = "lru", arguments.cache_lru
    found = folders(arguments)
    engine = EngineConfig(
        folders=found,
        worker=WorkerConfig(
            workers=arguments.workers,
            threads=arguments.threads,
            arena_bytes=arguments.arena_memory,
            arena_kind=arguments.arena,
            device_bytes=arguments.device_memory,
            host_bytes=arguments.host_memory,
            resident=arguments.resident,
            profiles=found.user / PROFILES_FOLDER,
        ),
        cache=cache,
        cache_lru_entries=entries,
        preview_method=_PREVIEWS[arguments.preview_method],
        embeds_metadata=not arguments.disable_metadata,
        checkpoint_steps=arguments.checkpoint_steps,
        splits_guidance=arguments.split_guidance == "on",
        history_limit=arguments.history_limit,
        history_days=arguments.history_days,
        database=_database(arguments.database),
    )
    return ServerConfig(
        engine=engine,
        listen=tuple(address.strip() for address in arguments.listen.split(",") if address.strip()),
        port=arguments.port,
        cors_origin=arguments.enable_cors_header,
        max_upload_bytes=round(arguments.max_upload_size * _MIB),
        compress=arguments.enable_compress_response_body,
        argv=("comfyserverless", *argv),
        tenants_file=arguments.tenants,
        accounts=_accounts(arguments, engine.folders),
        allows_strangers=arguments.insecure,
        drain_s=arguments.drain_timeout,
    )
        has_users=arguments.multi_user,
        webhook_allow=tuple(arguments.webhook_allow),


def _database(given: str) -> str:
    """Return the records file as an absolute path; empty and `memory` stay as they are. Raises ConfigError."""
    if "://" in given:
        raise ConfigError(f"--database {given}: only files are supported, and `memory`")
    return os.path.abspath(given) if given not in ("", "memory") else given


def _accounts(arguments: Arguments, places: Folders) -> Path | None:
    """Return the accounts file that the server uses, None if it has none or is given another one."""
    if arguments.tenants is not None:
        return None
    from comfyserverless.control.accounts.database import accounts_path, has_accounts

    path = accounts_path(places.user)
    return path if has_accounts(path) else None


def folders(arguments: Arguments) -> Folders:
    """Resolve the folder flags; the demo model's folder is always searched, and last. Raises ConfigError."""
    base = Path(os.path.abspath(arguments.base_directory))
    temp = arguments.temp_directory
    return Folders(
        base=base,
        models=_models(base, arguments.models_dirs),
        input=_folder(arguments.input_directory, base / "input"),
        output=_folder(arguments.output_directory, base / "output"),
        temp=_folder(None if temp is None else temp / "temp", base / "temp"),
        user=_folder(arguments.user_directory, base / "user"),
        custom_nodes=base / "custom_nodes",
        extra_model_paths=tuple(Path(os.path.abspath(file)) for file in arguments.extra_model_paths_config),
    )


def _folder(given: Path | None, default: Path) -> Path:
    return default if given is None else Path(os.path.abspath(given))


def _models(base: Path, given: Sequence[Path] | None) -> tuple[Path, ...]:
    from comfyserverless.control.files import demo_models_folder

    roots = [Path(os.path.abspath(root)) for root in given or ()]
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"--models-dir {root}: there is no such folder")
        if not os.access(root, os.R_OK | os.X_OK):
            raise ConfigError(f"--models-dir {root}: the folder is not readable")
    roots += [root for root in (base / "models",) if not given and root.is_dir()]
    demo = demo_models_folder()
    return (*roots, demo) if demo.is_dir() else tuple(roots)


def _serve(arguments: Arguments, argv: Sequence[str]) -> int:
    config = server_config(arguments, argv)
    from comfyserverless.server.logs import set_up_logging
    from comfyserverless.server.main import serve

    return serve(config, set_up_logging(arguments.verbose))


def _add_bench_flags(parser: argparse.ArgumentParser) -> None:
    from comfyserverless.bench.flags import add_flags

    add_flags(parser)


def _bench(arguments: Arguments, argv: Sequence[str]) -> int:
    from comfyserverless.bench.flags import run

    return run(arguments, argv)


def _add_tenant_flags(parser: argparse.ArgumentParser) -> None:
    from comfyserverless.control.accounts.commands import add_flags

    add_flags(parser)


def _tenant(arguments: Arguments, argv: Sequence[str]) -> int:
    from comfyserverless.control.accounts.commands import run

    for line in run(arguments):
        print(line)
    return 0


def _add_demo_flags(parser: argparse.ArgumentParser) -> None:
    from comfyserverless.training.commands import add_flags

    add_flags(parser)


def _demo(arguments: Arguments, argv: Sequence[str]) -> int:
    from comfyserverless.training.commands import run

    return run(arguments, argv)


Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Arguments, Sequence[str]], int]]

#: Name -> (one line of help, adds its flags, runs it and returns the exit code).
COMMANDS: dict[str, Command] = {
    "serve": ("serve the ComfyUI page and API", _add_serve_flags, _serve),
    "tenant": ("make and change accounts", _add_tenant_flags, _tenant),
    "bench": ("measure this installation from outside", _add_bench_flags, _bench),
    "demo": ("train the demo models, or judge what a server draws with them", _add_demo_flags, _demo),
}


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    root = argparse.ArgumentParser(prog="comfyserverless", description=__doc__, allow_abbrev=False)
    commands = root.add_subparsers(dest="command", required=True)
    for name, (help_line, add_flags, _) in COMMANDS.items():
        add_flags(commands.add_parser(name, help=help_line, description=help_line, allow_abbrev=False))
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code, 2 for what the user has to correct."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parse(given)
        return COMMANDS[arguments.command][2](arguments, given)
    except ConfigError as exc:
        print(f"comfyserverless: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # Ctrl-C before the command takes it: nothing runs yet that must be ended
        return _ENDED_BY_SIGINT


def _parse(given: Sequence[str]) -> Arguments:
    """Parse a command line; unlike argparse alone, say of an unknown flag where the known ones are listed."""
    root = parser()
    arguments, unknown = root.parse_known_args(given)
    if unknown:
        root.exit(
            2,
            f"comfyserverless {arguments.command}: unknown arguments: {' '.join(unknown)}\n"
            f"`comfyserverless {arguments.command} --help` lists what there is\n",
        )
    return arguments
