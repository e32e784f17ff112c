"""Make and change lists of noise levels."""
