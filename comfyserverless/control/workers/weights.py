"""Divide the machine's memory for weights between workers."""

from __future__ import annotations

from dataclasses import dataclass

from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WeightsPlan:
    """What each worker may keep; given_*: what was asked for, or 0; share_bytes: of half the memory."""

    given_device_bytes: int
    given_host_bytes: int
    share_bytes: int
    resident: str
    profiles_path: str

    def device_bytes(self, has_gpu: bool) -> int:
        """Return the budget of a worker on its device; 0 lets a worker with a GPU look at that one's memory."""
        return self.given_device_bytes or (0 if has_gpu else self.share_bytes)

    def host_bytes(self, has_gpu: bool) -> int:
        """Return the budget in host memory; without a GPU the weights are there anyway."""
        return self.given_host_bytes or (self.share_bytes // 2 if has_gpu else 0)


def plan_weights(config: WorkerConfig, memory_bytes: int, workers: int, has_gpus: bool = False) -> WeightsPlan:
    """Return the plan for so many workers of equal right.

    Raises ConfigError if what was asked for exceeds the machine's memory.
    """
    given = {"--host-memory": config.host_bytes}
    if not has_gpus:  # what computes is host memory, too
        given["--device-memory"] = config.device_bytes
    if memory_bytes and sum(given.values()) * workers > memory_bytes:
        asked = " and ".join(f"{flag} {size_bytes >> 20}M" for flag, size_bytes in given.items() if size_bytes)
        raise ConfigError(
            f"{asked}: {workers} worker{'s' * (workers > 1)} would need"
            f" {sum(given.values()) * workers >> 20}M, the machine has {memory_bytes >> 20}M"
        )
    return WeightsPlan(
        config.device_bytes,
        config.host_bytes,
        memory_bytes // 2 // workers,
        config.resident,
        "" if config.profiles is None else str(config.profiles),
    )
