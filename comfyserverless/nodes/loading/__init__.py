"""Help the nodes that load models to find files."""
