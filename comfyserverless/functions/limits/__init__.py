"""Refuse what no machine can hold, before anything is allocated for it."""
