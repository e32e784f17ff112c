"""Describe and call node classes of the first contract (INPUT_TYPES, RETURN_TYPES, FUNCTION)."""
