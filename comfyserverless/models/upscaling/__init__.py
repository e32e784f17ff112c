"""Load and run upscalers, networks that make pictures larger."""
