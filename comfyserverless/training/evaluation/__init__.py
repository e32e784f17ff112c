"""Judge a checkpoint by what a server draws with it: questions, the judge, marks, a report.

Everything goes through ComfyUI's API, as a user would do it. Never here: torch, or the inside of the server.
"""

from comfyserverless.training.evaluation.flags import add_evaluate_flags, run_evaluate

__all__ = ["add_evaluate_flags", "run_evaluate"]
