"""ComfyUI's `utils`, as far as packs use it."""
