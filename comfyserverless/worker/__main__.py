"""Start the zygote: `python -m comfyserverless.worker '{"threads": 1}'`; see `core.zygote` for its lines.

What the environment must say before torch is imported is said here, so this module imports no torch.
"""

from __future__ import annotations

import sys

import msgspec

from comfyserverless.core.zygote import ZygoteOptions
from comfyserverless.worker.environment import prepare_environment


def main(argv: list[str]) -> int:
    """Run the zygote until its stdin ends; return the exit code."""
    options = msgspec.json.decode(argv[1] if len(argv) > 1 else "{}", type=ZygoteOptions)
    prepare_environment(options.threads)
    # Only now: this import loads torch, which reads the environment once.
    from comfyserverless.worker.zygote import run_zygote

    return run_zygote(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
