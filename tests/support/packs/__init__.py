"""Small packs of node classes in ComfyUI's convention, for servers that tests start."""
