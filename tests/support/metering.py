"""Build stays of invocations in lanes, as the meter tells of them."""

from __future__ import annotations

from comfyserverless.control.metering.measured import Measured
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.scheduling.instructions import Outcome


def stay(
    began_s: float,
    ended_s: float,
    *,
    tenant: str = "alice",
    function: str = "denoise.step",
    lane: Lane = "gpu",
    outcome: Outcome = "done",
) -> Measured:
    """Return one stay on worker `w0.0`, charged in full, of which a tenth was loading."""
    held_s = ended_s - began_s
    spec = InvocationSpec(
        id=InvocationId(f"{tenant}-p#0/3/1"),
        run=PromptId(f"{tenant}-p#0"),
        tenant=TenantId(tenant),
        node=NodeId("3"),
        function=function,
        lane=lane,
        cost_key=function,
    )
    timing = Timing(load_s=held_s / 10, compute_s=held_s * 9 / 10)
    return Measured(spec, WorkerId("w0.0"), outcome, 0.0, held_s, timing, held_s, ended_s)
