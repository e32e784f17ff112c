"""Nodes that change and combine latents."""
