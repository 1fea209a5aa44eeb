"""Sixteen ways in which a provider fails, and what a caller and the provider see of each: `benchmarks.failover`.

The situations and their rules are those of failoverbench's public methodology 0.1; code and words are our own.
"""
