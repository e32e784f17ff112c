"""Hold the settings of each room as frozen data; the command line parses into these once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folders:
    """Where files live. All paths are absolute.

    models: ComfyUI-style model roots, the user's first (the demo model's folder may be the last one);
    extra_model_paths: (yaml file) list from --extra-model-paths-config, applied before the defaults.
    """

    base: Path
    models: tuple[Path, ...]
    input: Path
    output: Path
    temp: Path
    user: Path
    custom_nodes: Path
    extra_model_paths: tuple[Path, ...] = ()


LEAST_GIVEN_ARENA_BYTES = 64 << 20
"""The smallest arena that may be asked for: one picture of 1024x1024 and what is made on the way to it."""

LEAST_WEIGHTS_BYTES = 256 << 20
"""The least that results in a GPU's memory must leave to weights there: a large layer, and the one after it."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How worker processes are started.

    workers: slots; 0 means one per GPU, or one on a machine without a GPU. threads: torch threads of each
    worker, 0 means its share of the cores less one. arena_bytes: size of each worker's arena, 0 means its share
    of a quarter of the memory. arena_kind: where arenas are, `shared` (memory of this host) or `nvshmem` (of
    the GPUs; workers that cannot take part say why, and all of them use shared memory). device_bytes: budget of
    each worker's weights on its device, 0 means a share of the memory; host_bytes: of weights that it keeps in
    host memory beside that, 0 means a share for workers on GPUs and nothing for others. resident: how weights
    leave memory, a name of residency.policy. profiles: folder for measured times of layers, None keeps none.
    log_level, log_format: of what workers log, as in `log_lines`.
    """

    workers: int = 0
    threads: int = 0
    arena_bytes: int = 0
    arena_kind: str = "shared"
    device_bytes: int = 0
    host_bytes: int = 0
    resident: str = "layers"
    profiles: Path | None = None
    log_level: str = "INFO"
    log_format: str = "text"


GRACE_S = 2.0
"""How long a tenant may be without work and not count as away."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the control room needs to run.

    slack_s: fairness slack (Delta of Algorithm 1) in seconds of service; grace_s: how long a tenant may be
    without work and not count as away; policy: how it is chosen whose turn it is, a name of scheduling.config.
    cache: `classic`, `lru` or `none`.
    history_limit: ended prompts kept per tenant; history_days: for how long, 0 means at any age;
    usage_days: for how many days it is known what was used on them, 0 means for ever. database: file
    of the records, or address of a PostgreSQL database; empty for the file in the user folder, `memory` to keep
    them only while the server runs.
    preview_method, preview_px: how latents are shown while sampling (`none`, `auto`, `latent2rgb`, `taesd`),
    unless the prompt says so, and the longer side.
    max_attempts: losses of its worker after which a call is given up. checkpoint_steps: steps between two
    copies of a sampler's state that outlive its worker; 0 for none, None to weigh their time. split_guidance:
    whether the branches of classifier-free guidance are calls apart, which moves the last bits of pictures:
    `off`, `on`, or `auto`: as was measured once for a model and size, and is kept beside worker.profiles.
    loads_packs: whether custom node packs are loaded; pack_whitelist: only those of these names, None for all.
    pack_flags, argv, address, port: what packs can see of how the server was started.
    """

    folders: Folders
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    slack_s: float = 2.0
    grace_s: float = GRACE_S
    policy: str = "vtime"
    cache: str = "classic"
    cache_lru_entries: int = 0
    preview_method: str = "none"
    preview_px: int = 512
    embeds_metadata: bool = True
    history_limit: int = 10_000
    history_days: float = 0.0
    usage_days: float = 400.0
    database: str = field(default="", repr=False)  # an address may hold a password
    max_attempts: int = 2
    checkpoint_steps: int | None = None
    split_guidance: str = "off"
    loads_packs: bool = True
    pack_whitelist: tuple[str, ...] | None = None
    pack_flags: Mapping[str, object] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    port: int = 8188


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How the HTTP side listens and what it allows.

    tenants_file: accounts as TOML; accounts: the accounts file that `comfyserverless tenant` writes, if the
    server shall use it. With neither there is one tenant and no login. allows_strangers: such a server may
    listen where other machines reach it. drain_s: how long running prompts may go on when the server ends.
    metrics_token: with it the metrics can be read, and nothing else done; empty for none.
    has_users: people choose their settings and files by name (ComfyUI's multi-user mode, without accounts).
    webhook_allow: hosts and networks that webhooks may reach although they are not public.
    """

    engine: EngineConfig
    listen: tuple[str, ...] = ("127.0.0.1",)
    port: int = 8188
    cors_origin: str | None = None
    max_upload_bytes: int = 100 * 1024 * 1024
    compress: bool = False
    argv: tuple[str, ...] = ()
    tenants_file: Path | None = None
    accounts: Path | None = None
    allows_strangers: bool = False
    has_users: bool = False
    webhook_allow: tuple[str, ...] = ()
    drain_s: float = 5.0
    metrics_token: str = field(default="", repr=False)
