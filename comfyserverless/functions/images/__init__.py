"""Change and combine images on the CPU lane; IMAGE is [B, H, W, 3 or 4] float32 in 0..1."""
