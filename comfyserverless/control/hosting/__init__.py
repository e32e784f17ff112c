"""Speak with the node host: what its packs bring, what its nodes do, and what they ask for."""
