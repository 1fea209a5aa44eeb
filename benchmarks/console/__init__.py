"""Calls beside people who use the console: `python -m benchmarks console`."""
