"""ComfyUI's `comfy_api`."""
