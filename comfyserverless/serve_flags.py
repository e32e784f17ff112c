"""Declare the flags of `serve`: names, values and help."""

from __future__ import annotations

import argparse
from pathlib import Path

from comfyserverless import flag_values as values
from comfyserverless.log_lines import FORMATS
from comfyserverless.residency.policy import POLICIES
from comfyserverless.scheduling.config import POLICY_NAMES

_EVERY_ADDRESS = "0.0.0.0,::"
_ARENAS = ("shared", "nvshmem")
PREVIEW_METHODS = ("none", "auto", "latent2rgb", "taesd")

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def add_serve_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `serve`."""
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
    add(
        "--preview-method",
        choices=PREVIEW_METHODS,
        default="none",
        help="pictures while sampling, for prompts that do not choose; taesd: with the decoders in"
        " models/vae_approx; auto: latent2rgb",
    )
    add("--preview-size", type=values.pixels, default=512, metavar="PIXELS", help="longer side of those")
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--cache-classic", action="store_true", help="keep results of the last prompt (default)")
    cache.add_argument("--cache-lru", type=values.count, metavar="N", help="keep the N last used node results")
    cache.add_argument("--cache-none", action="store_true", help="keep no node results")
    add("--disable-metadata", action="store_true", help="save pictures without the prompt and workflow")
    _add_pack_flags(parser)
    _add_worker_flags(parser)
    _add_arena_flags(parser)
    _add_weights_flags(parser)
    _add_recovery_flags(parser)
    _add_sharing_flags(parser)
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
    add(
        "--metrics-token-file",
        type=values.token_in_file,
        metavar="FILE",
        help="holds a token with which a monitoring system may read /metrics, and do nothing else",
    )
    add("--log-format", choices=FORMATS, default="text", help="lines for people, or JSON, one object a line")


def _add_pack_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--disable-all-custom-nodes", action="store_true", help="load no custom node packs")
    add(
        "--whitelist-custom-nodes",
        nargs="+",
        action="extend",
        default=[],
        metavar="PACK",
        help="packs that are loaded although --disable-all-custom-nodes is given",
    )


def _add_worker_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--workers",
        type=values.processes,
        default=0,
        metavar="N",
        help="worker processes; 0: one per GPU, or one",
    )
    add("--threads", type=values.processes, default=0, metavar="N", help="threads of each worker; 0: its share")
    add("--split-guidance", choices=("off", "on", "auto"), default="off", help=values.SPLIT_GUIDANCE)


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
        metavar="FILE|ADDRESS",
        help="where prompts and history are kept (default: records.sqlite3 in the user folder): a file, or"
        " postgresql://USER@HOST/NAME; `memory` keeps them until the server ends",
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
        "--usage-days",
        type=values.amount,
        default=400.0,
        metavar="DAYS",
        help="for how many days it is kept who used how much on them (default: %(default)g; 0: for ever)",
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


def _add_sharing_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--slack",
        type=values.amount,
        default=2.0,
        metavar="S",
        help="seconds of service that a tenant may be ahead of another and still compete with it: more"
        " lets short work pass, less keeps shares closer (default: %(default)g)",
    )
    add(
        "--policy",
        choices=POLICY_NAMES,
        default="vtime",
        help="whose turn it is (default: %(default)s, fair in seconds of service; others: to compare)",
    )
