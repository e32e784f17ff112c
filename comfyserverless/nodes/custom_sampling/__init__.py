"""Nodes that put a sampler together from its parts: noise, guider, sampler, levels."""
