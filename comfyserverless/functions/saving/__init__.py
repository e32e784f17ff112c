"""Write models to files."""
