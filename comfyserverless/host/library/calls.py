"""Call built-in nodes on the workers, for the prompt that is served now."""

from __future__ import annotations

from typing import Any

from comfyserverless.host.bridge import bridge


def run_node(class_type: str, /, **inputs: Any) -> tuple[Any, ...]:
    """Return the outputs of a node; values are what packs work with: tensors, models, conditionings.

    Raises InterruptProcessingException if the prompt was stopped, RuntimeError with the message of what failed.
    """
    return tuple(bridge().ask("run_node", {"class_type": class_type, "inputs": inputs}))
