"""Let CLIP, VAE, CONTROL_NET and upscalers look to packs as ComfyUI's objects do; they run on the workers."""
