"""Start the zygote of workers and node host: `python -m comfyserverless.host '{"threads": 1}'`.

See `core.zygote` for its lines. What the environment must say before torch is imported is said here, so this
module imports no torch.
"""

from __future__ import annotations

import os
import sys

import msgspec

from comfyserverless.core.zygote import SpawnWorker, ZygoteOptions
from comfyserverless.worker.environment import prepare_environment


def main(argv: list[str]) -> int:
    """Run the zygote until its stdin ends; return the exit code."""
    options = msgspec.json.decode(argv[1] if len(argv) > 1 else "{}", type=ZygoteOptions)
    is_offline = "HF_HUB_OFFLINE" in os.environ  # said by whoever started us, and not by the next line
    prepare_environment(options.threads)
    # Only now: this import loads torch, which reads the environment once.
    from comfyserverless.worker.zygote import be_worker, run_zygote

    def work(options: ZygoteOptions, request: SpawnWorker) -> int:
        if request.host is None:
            return be_worker(options, request)
        from comfyserverless.host.process import run_host

        return run_host(options, request, is_offline=is_offline)

    return run_zygote(options, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
