"""Change and combine latents on the CPU lane; samples are [B, C, h, w] float32."""
