"""Give what is too large for one pass of a network to it in tiles."""
