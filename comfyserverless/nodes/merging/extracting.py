"""Save what one model has more than another as a LoRA."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputSpec, NodeDeclaration
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import save_files
from comfyserverless.nodes.specs import choice, switch, text, whole
from comfyserverless.nodes.taking import Inputs, take_clip, take_model

_TYPES = ("standard", "full_diff")


async def _save_lora(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Save one file, without a workflow in it; nothing if there is no difference to take."""
    model = None if inputs.get("model_diff") is None else take_model(inputs, "model_diff")
    clip = None if inputs.get("text_encoder_diff") is None else take_clip(inputs, "text_encoder_diff")
    if model is not None or clip is not None:
        place = ctx.destination("output", inputs["filename_prefix"])
        how = {"rank": inputs["rank"], "lora_type": inputs["lora_type"], "has_biases": inputs["bias_diff"]}
        await save_files(ctx, "lora.save", place, "safetensors", model=model, clip=clip, metadata={}, **how)
    return NodeResult(ui={})


NODES = (
    NodeDeclaration(
        name="LoraSave",
        display_name="Extract and Save Lora",
        category="_for_testing",
        python_module="comfy_extras.nodes_lora_extract",
        experimental=True,
        lower=_save_lora,
        output_node=True,
        inputs=(
            text("filename_prefix", default="loras/ComfyUI_extracted_lora", multiline=False),
            whole("rank", 8, 1, 4096, step=1),
            choice("lora_type", _TYPES),
            switch("bias_diff", True),
            InputSpec("model_diff", "MODEL", section="optional"),
            InputSpec("text_encoder_diff", "CLIP", section="optional"),
        ),
        hidden={"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]},
    ),
)
"""The declarations of this module, in the order of the node menu."""
