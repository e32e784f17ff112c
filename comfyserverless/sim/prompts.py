"""Describe simulated prompts: the invocations of text to image, and what each of them costs.

The calls and their order are those that the nodes of the graph emit. Costs follow measured figures of SD 1.5 at
512 pixels on an H800 (`step`: 16.6 ms for one picture, 34.6 ms for eight; decoding 26 ms each), so they are as
uneven as real ones; only ratios matter to what is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from comfyserverless.core.modelfn import Lane

_ENCODE_S = 0.0037
_STEP_S, _STEP_OF_EACH_S = 0.014, 0.0026
_DECODE_OF_EACH_S = 0.026
_SAVE_OF_EACH_S = 0.02
_TRIFLE_S = 0.0005


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """One invocation. needs: names of earlier calls of the prompt; cost_s: seconds of its lane but for load."""

    name: str
    function: str
    lane: Lane
    cost_s: float
    needs: tuple[str, ...] = ()
    part: str = ""


@dataclass(frozen=True, slots=True)
class PromptShape:
    """What a prompt asks for. model: whose weights it runs on."""

    images: int
    steps: int
    model: str = "sd15"

    def calls(self) -> Iterator[SimulatedCall]:
        """List the invocations in the order in which they are submitted."""
        yield SimulatedCall("positive", "text.encode", "gpu", _ENCODE_S, part="clip")
        yield SimulatedCall("negative", "text.encode", "gpu", _ENCODE_S, part="clip")
        yield SimulatedCall("latent", "latent.empty", "cpu", _TRIFLE_S)
        known = ("positive", "negative")
        yield SimulatedCall("begin", "sample.begin", "gpu", _TRIFLE_S, ("latent",), "network")
        before = "begin"
        for step in range(self.steps):
            name = f"step{step}"
            yield SimulatedCall(name, "denoise.step", "gpu", self._step_s(), (before, *known), "network")
            before = name
        yield SimulatedCall("end", "sample.end", "gpu", _TRIFLE_S, (before,), "network")
        yield SimulatedCall("decode", "vae.decode", "gpu", _DECODE_OF_EACH_S * self.images, ("end",), "vae")
        yield SimulatedCall("save", "image.save", "cpu", _SAVE_OF_EACH_S * self.images, ("decode",))

    def service_s(self, lane: Lane = "gpu") -> float:
        """Return the seconds of a lane that one prompt takes, without loading."""
        return sum(call.cost_s for call in self.calls() if call.lane == lane)

    def _step_s(self) -> float:
        return _STEP_S + _STEP_OF_EACH_S * self.images
