"""Whether the branches of guidance are calls apart, where that is measured: decided once, and kept."""
