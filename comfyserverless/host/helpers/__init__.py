"""Functions on tensors, state dicts and progress that packs use as a library."""
