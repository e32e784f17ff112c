"""Say in a saved file what its tensors do not show: what the network predicts, and of which noise process."""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.models.families.base import ModelFacts


def marks_of(facts: ModelFacts) -> dict[str, Tensor]:
    """Return the tensors that stand beside a network in its file; most are empty, their names say it all."""
    arguments = {} if facts.process is None else dict(facts.process.arguments)
    if "sigma_max" in arguments and arguments["sampling"] == "v_prediction":
        return {f"edm_vpred.{name}": torch.tensor(arguments[name]) for name in ("sigma_max", "sigma_min")}
    if "sigma_max" in arguments:
        return {"edm_mean": torch.zeros(0), "edm_std": torch.zeros(0)}
    if facts.prediction != "v_prediction":
        return {}
    return {name: torch.zeros(0) for name in ("v_pred", *(["ztsnr"] if arguments.get("zsnr") else []))}
