"""Noise processes that model patches put in place of a model's own, and what networks may predict."""
