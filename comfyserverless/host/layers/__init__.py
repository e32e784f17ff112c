"""Give packs what they build networks of their own with: layer factories, attention, names of ComfyUI's
parts."""
