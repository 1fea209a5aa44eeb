"""Batches of requests: their records, the lines of their input, and the log of their results."""
