"""Count and measure for Prometheus: base units, bounded labels, one registry of a server's own.

Counting happens on the event loop as things happen; what can be looked at is looked at when somebody asks.
"""
