"""Clients choose prompt ids, and choose the same one twice."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.process.test_recovery import graph
from tests.support.client import Client
from tests.support.server import RunningServer


async def test_prompt_id_can_be_used_again_while_its_results_are_cached(
    server: RunningServer, tiny_models: Path
) -> None:
    prompt_id = str(uuid.uuid4())
    async with Client(server.url) as client:
        for seed in (101, 102):
            prompt = graph(seed, steps=2)
            prompt["2"]["inputs"]["text"] = f"a red cat {seed}"
            result = await client.run(prompt, prompt_id=prompt_id)
            assert result.outcome == "execution_success", result.messages[-2:]
            assert {"2", "5", "7"} <= set(result.executed_nodes())
