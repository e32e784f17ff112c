"""ComfyUI's `comfy.k_diffusion`."""
