"""Show latents as pictures while they are sampled."""
