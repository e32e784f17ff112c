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
from comfyserverless.serve_flags import add_serve_flags

_MIB = 1 << 20
PROFILES_FOLDER = "__profiles"
"""Below the user folder; names that begin so are no user's (as in ComfyUI)."""

_ENDED_BY_SIGINT = 130

Arguments = argparse.Namespace


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
            log_level=arguments.verbose,
            log_format=arguments.log_format,
        ),
        cache=cache,
        cache_lru_entries=entries,
        preview_method=arguments.preview_method,
        preview_px=arguments.preview_size,
        embeds_metadata=not arguments.disable_metadata,
        checkpoint_steps=arguments.checkpoint_steps,
        slack_s=arguments.slack,
        policy=arguments.policy,
        split_guidance=arguments.split_guidance,
        history_limit=arguments.history_limit,
        history_days=arguments.history_days,
        usage_days=arguments.usage_days,
        database=values.database(arguments.database),
        loads_packs=not arguments.disable_all_custom_nodes or bool(arguments.whitelist_custom_nodes),
        pack_whitelist=_whitelist(arguments),
        pack_flags=values.pack_flags(arguments),
        argv=("comfyserverless", *values.without_addresses(argv)),
        address=arguments.listen.split(",")[0].strip(),
        port=arguments.port,
    )
    return ServerConfig(
        engine=engine,
        listen=tuple(address.strip() for address in arguments.listen.split(",") if address.strip()),
        port=arguments.port,
        cors_origin=arguments.enable_cors_header,
        max_upload_bytes=round(arguments.max_upload_size * _MIB),
        compress=arguments.enable_compress_response_body,
        argv=("comfyserverless", *values.without_addresses(argv)),
        tenants_file=arguments.tenants,
        accounts=_accounts(arguments, engine.folders),
        allows_strangers=arguments.insecure,
        has_users=arguments.multi_user,
        webhook_allow=tuple(arguments.webhook_allow),
        drain_s=arguments.drain_timeout,
        metrics_token=arguments.metrics_token_file or "",
    )


def _whitelist(arguments: Arguments) -> tuple[str, ...] | None:
    """Return the packs that may be loaded, None for all: as in ComfyUI the list holds against a ban of all."""
    return tuple(arguments.whitelist_custom_nodes) if arguments.disable_all_custom_nodes else None


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

    return serve(config, set_up_logging(arguments.verbose, arguments.log_format))


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


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    from comfyserverless.client.flags import add_flags

    add_flags(parser)


def _run(arguments: Arguments, argv: Sequence[str]) -> int:
    from comfyserverless.client.commands import run

    return run(arguments)


def _add_demo_flags(parser: argparse.ArgumentParser) -> None:
    from comfyserverless.training.commands import add_flags

    add_flags(parser)


def _demo(arguments: Arguments, argv: Sequence[str]) -> int:
    from comfyserverless.training.commands import run

    return run(arguments, argv)


Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Arguments, Sequence[str]], int]]

#: Name -> (one line of help, adds its flags, runs it and returns the exit code).
COMMANDS: dict[str, Command] = {
    "serve": ("serve the ComfyUI page and API", add_serve_flags, _serve),
    "run": ("run a workflow or a picture's workflow, and save what it makes", _add_run_flags, _run),
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
