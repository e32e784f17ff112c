"""ComfyUI's `comfy_execution`."""
