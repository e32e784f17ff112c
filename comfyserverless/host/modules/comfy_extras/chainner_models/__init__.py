"""ComfyUI's `comfy_extras.chainner_models`."""
