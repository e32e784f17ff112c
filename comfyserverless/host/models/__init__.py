"""Let MODEL, CLIP, VAE and CONTROL_NET look to packs as ComfyUI's objects do; the weights stay on the
workers."""
