"""Measure a server as a server: many clients, long queues, and kills at random moments."""
