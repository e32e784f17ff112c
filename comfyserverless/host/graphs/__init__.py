"""Build the graphs that nodes expand to."""
