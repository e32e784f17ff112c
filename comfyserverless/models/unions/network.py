"""The network of union ControlNets (ControlNet++, github.com/xinsir6/ControlNetPlus), one hint in each run.

diffusers' module has the parameters. Its own forward takes no hint without a type, and lets the items of a
batch attend to each other; in ComfyUI, whose pictures we make, a hint without a type is a plain ControlNet's,
and an item's result does not depend on other items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from diffusers.models.controlnets.controlnet_union import ControlNetUnionModel
from torch import Tensor


class UnionNetwork(ControlNetUnionModel):
    """A ControlNet that is told the type of its hint, or nothing about it."""

    def forward(  # type: ignore[override]
        self,
        sample: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        controlnet_cond: Tensor,
        class_labels: Tensor | None = None,
        control_types: Sequence[int] = (),
        **options: Any,
    ) -> tuple[list[Tensor], Tensor]:
        """Return the residuals of the input blocks, and of the middle one.

        sample: [N, C, h, w]; timestep: [N]; encoder_hidden_states: [N, T, D]; controlnet_cond:
        [1 or N, 3, h * 8, w * 8]; class_labels: [N, A] or None; control_types: one number, or none.
        """
        time = self.time_embedding(self.time_proj(timestep.expand(sample.shape[0])).to(sample.dtype))
        emb = time + self._embed_types(control_types, sample)
        if self.class_embedding is not None:
            emb = emb + self.class_embedding(class_labels)
        hidden = self.conv_in(sample) + self._guide(controlnet_cond, control_types)
        outputs = [hidden]
        for block in self.down_blocks:
            text = {}
            if getattr(block, "has_cross_attention", False):
                text = {"encoder_hidden_states": encoder_hidden_states}
            hidden, skips = block(hidden_states=hidden, temb=emb, **text)
            outputs.extend(skips)
        hidden = self.mid_block(hidden, emb, encoder_hidden_states=encoder_hidden_states)
        residuals = [
            project(output) for project, output in zip(self.controlnet_down_blocks, outputs, strict=True)
        ]
        return self._pool(residuals), self._pool([self.controlnet_mid_block(hidden)])[0]

    def _embed_types(self, control_types: Sequence[int], like: Tensor) -> Tensor:
        """Return what is added to the time embedding, [1, E]; no type is also something that is told."""
        chosen = torch.zeros(self.config["num_control_type"], device=like.device)
        chosen[list(control_types)] = 1.0
        embedded: Tensor = self.control_add_embedding(
            self.control_type_proj(chosen).reshape(1, -1).to(like.dtype)
        )
        return embedded

    def _guide(self, hint: Tensor, control_types: Sequence[int]) -> Tensor:
        """Return what is added to the first features, [1 or N, C, h, w]."""
        guide: Tensor = self.controlnet_cond_embedding(hint)
        for number in control_types:
            # One sequence of one item per hint: each attends to itself alone.
            tokens = (guide.mean(dim=(2, 3)) + self.task_embedding[number]).unsqueeze(0)
            for layer in self.transformer_layes:
                tokens = layer(tokens)
            guide = guide + self.spatial_ch_projs(tokens[0])[:, :, None, None]
        return guide

    def _pool(self, residuals: Iterable[Tensor]) -> list[Tensor]:
        if not self.config["global_pool_conditions"]:
            return list(residuals)
        return [residual.mean(dim=(2, 3), keepdim=True) for residual in residuals]
